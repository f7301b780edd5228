"""The result of `agent recheck`: verdicts that changed, and candidates that could not be judged again."""

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
    """One verdict that today's judge does not share."""

    candidate_id: int
    trajectory_id: int
    turn: int
    """The number of the turn, from 1."""
    problem: str
    was: str
    """`correct`, or the fault: `mismatch`, `cheat (cache)`."""
    now: str
    why: str
    """Today's explanation; that of the earlier verdict where the candidate is correct now."""
    evaluator_then: str
    evaluator_now: str


class NotJudged(Value):
    """One candidate that could not be judged again, and why: its verdict is as it was."""

    candidate_id: int
    problem: str
    why: str


class Rechecks(Value):
    """The result of a recheck."""

    database: str
    run: str = ""
    evaluator: str
    """The version of today's evaluator."""
    tools: Environment | None = None
    """None where nothing was left to judge."""
    candidates: int
    """Candidates that hold code and a verdict."""
    before: int
    """Judged by this evaluator in an earlier sitting, or from the start."""
    here: int
    """Judged in this sitting."""
    left: int
    """Number of candidates that this call did not reach."""
    only_on_a_gpu: int = 0
    """Number of candidates with a GPU's verdict, which a CPU does not replace."""
    changed: tuple[ChangedVerdict, ...] = ()
    """Verdicts that changed in this sitting and in those before it."""
    not_judged: tuple[NotJudged, ...] = ()
    rewards: tuple[RescoredRewards, ...] = ()
    interrupted: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of each change, such as `mismatch -> correct`, the most frequent first."""
        return dict(Counter(f"{one.was} -> {one.now}" for one in self.changed).most_common())


def device_kind(verdict: Verdict | None) -> str:
    """Returns cpu, gpu, or an empty text where no kernel ran."""
    if verdict is None or not verdict.judged_on:
        return ""
    return "cpu" if verdict.judged_on == "cpu" else "gpu"


def is_of_todays_evaluator(verdict: Verdict | None, on_gpu: bool) -> bool:
    """Whether this evaluator would only say the same again: on a GPU it says more than on a CPU."""
    if verdict is None or verdict.evaluator != evaluator_version():
        return False
    return not (on_gpu and device_kind(verdict) == "cpu")


def changed_verdicts(store: Store, entries: Sequence[Entry], on_gpu: bool) -> list[ChangedVerdict]:
    """Compares, for each candidate that this evaluator has judged by now, the verdict in force with the last one of
    another evaluator.
    """
    found = []
    for entry in entries:
        verdicts = store.verdicts(entry.candidate.id)
        now = verdicts[-1]
        before = [v for v in verdicts[:-1] if v.evaluator != now.evaluator] or verdicts[:-1]
        if (
            not before
            or not is_of_todays_evaluator(now, on_gpu)
            or _verdict_text(before[-1]) == _verdict_text(now)
        ):
            continue
        was = before[-1]
        why = f"was: {_explain_change(was)}" if now.correct else _explain_change(now)
        found.append(ChangedVerdict(
            candidate_id=entry.candidate.id, trajectory_id=entry.trajectory.id, turn=entry.candidate.turn + 1,
            problem=entry.trajectory.problem, was=_verdict_text(was), now=_verdict_text(now), why=why,
            evaluator_then=was.evaluator, evaluator_now=now.evaluator,
        ))  # fmt: skip
    return found


def _verdict_text(verdict: Verdict) -> str:
    """Returns the verdict in words: `correct`, `mismatch`, `cheat (cache)`."""
    if verdict.correct or verdict.fault is None:
        return "correct" if verdict.correct else "not correct"
    return f"{verdict.fault} ({verdict.cheat})" if verdict.cheat else str(verdict.fault)


def _explain_change(verdict: Verdict) -> str:
    return one_line(f"ended at {verdict.rung}: {_verdict_text(verdict)}: {verdict.message}")


def one_line(text: str) -> str:
    """Returns at most 400 characters of a text, on one line."""
    return " ".join(clean_text(text, 400).split())
