"""Result of `agent recheck`: changed verdicts, and candidates that could not be judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import computed_field

from kernelwright.agent.replay.rejudging import RescoredRewards
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Verdict
from kernelwright.store.records import Entry
from kernelwright.tools.report import Environment, clean_text
from kernelwright.tools.verdict_cache import evaluator_version


class ChangedVerdict(Value):
    """Verdict that differs from the current judge's verdict."""

    candidate_id: int
    trajectory_id: int
    turn: int
    """Number of the turn, from 1."""
    problem: str
    was: str
    """Earlier verdict: `correct`, or the fault (`mismatch`, `cheat (cache)`)."""
    now: str
    why: str
    """Explanation of the new verdict, or of the earlier verdict if the candidate is correct now."""
    evaluator_then: str
    evaluator_now: str


class NotJudged(Value):
    """Candidate that could not be judged again, with the reason; its verdict is unchanged."""

    candidate_id: int
    problem: str
    why: str


class Rechecks(Value):
    """Result of a recheck."""

    database: str
    run: str = ""
    evaluator: str
    """Version of the current evaluator."""
    tools: Environment | None = None
    """Tools of the new verdicts; None if nothing had to be judged."""
    candidates: int
    """Number of candidates with code and a verdict."""
    before: int
    """Number of candidates already judged by this evaluator before this call."""
    here: int
    """Number of candidates judged in this call."""
    left: int
    """Number of candidates not reached by this call."""
    only_on_a_gpu: int = 0
    """Number of candidates with a GPU verdict, which a CPU verdict does not replace."""
    changed: tuple[ChangedVerdict, ...] = ()
    """Verdicts changed in this call and in earlier calls."""
    not_judged: tuple[NotJudged, ...] = ()
    rewards: tuple[RescoredRewards, ...] = ()
    interrupted: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of each change, such as `mismatch -> correct`, most frequent first."""
        return dict(
            Counter(f"{change.was} -> {change.now}" for change in self.changed).most_common()
        )


def device_kind(verdict: Verdict | None) -> str:
    """Returns cpu, gpu, or an empty text if no kernel ran."""
    if verdict is None or not verdict.judged_on:
        return ""
    return "cpu" if verdict.judged_on == "cpu" else "gpu"


def is_of_todays_evaluator(verdict: Verdict | None, on_gpu: bool) -> bool:
    """Returns whether this evaluator would repeat the verdict.

    A GPU verdict adds to a CPU verdict.
    """
    if verdict is None or verdict.evaluator != evaluator_version():
        return False
    return not (on_gpu and device_kind(verdict) == "cpu")


def changed_verdicts(store: Store, entries: Sequence[Entry], on_gpu: bool) -> list[ChangedVerdict]:
    """Compares the verdict in force with the last verdict of another evaluator, for candidates
    judged by this evaluator.
    """
    changes = []
    for entry in entries:
        verdicts = store.verdicts(entry.candidate.id)
        now = verdicts[-1]
        # Prefer the latest verdict of another evaluator: this evaluator may have judged repeatedly.
        before = [v for v in verdicts[:-1] if v.evaluator != now.evaluator] or verdicts[:-1]
        if (
            not before
            or not is_of_todays_evaluator(now, on_gpu)
            or _verdict_text(before[-1]) == _verdict_text(now)
        ):
            continue
        was = before[-1]
        why = f"was: {_explain_change(was)}" if now.correct else _explain_change(now)
        changes.append(ChangedVerdict(
            candidate_id=entry.candidate.id, trajectory_id=entry.trajectory.id, turn=entry.candidate.turn + 1,
            problem=entry.trajectory.problem, was=_verdict_text(was), now=_verdict_text(now), why=why,
            evaluator_then=was.evaluator, evaluator_now=now.evaluator,
        ))  # fmt: skip
    return changes


def _verdict_text(verdict: Verdict) -> str:
    """Returns the verdict in words: `correct`, `mismatch`, `cheat (cache)`."""
    if verdict.correct or verdict.fault is None:
        return "correct" if verdict.correct else "not correct"
    return f"{verdict.fault} ({verdict.cheat})" if verdict.cheat else str(verdict.fault)


def _explain_change(verdict: Verdict) -> str:
    return one_line(f"ended at {verdict.rung}: {_verdict_text(verdict)}: {verdict.message}")


def one_line(text: str) -> str:
    """Returns at most 400 characters of a text on a single line."""
    return " ".join(clean_text(text, 400).split())
