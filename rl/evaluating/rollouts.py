"""Reads the rollouts of an evaluation from the store, turn by turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kernelwright.agent.reporting.samples import Cost, ReportedSample, passed_compile_rung
from kernelwright.policies.base import Value
from kernelwright.rl.evaluating.text_checks import CheckedText, has_patterns, overlap
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter, Turn


class RolloutTurn(Value):
    """One turn."""

    compiled: bool
    correct: bool
    speedup: float | None = None
    """The speedup over eager PyTorch, where it is correct and was judged on a GPU."""
    judged_on: str = ""
    fault: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    policy_seconds: float = 0.0
    tool_seconds: float = 0.0
    light: CheckedText | None = None
    """None where the reply held no code."""


class Rollout(Value):
    """One attempt at one problem: a draft, and repairs of it until it is right or the turns are spent."""

    trajectory_id: int
    problem: str
    family: str
    sample: int
    finished: bool
    stop_reason: str
    turns: tuple[RolloutTurn, ...]

    def within(self, turns: int) -> ReportedSample:
        """The rollout as if it had had so many turns: right where any of them is, with the best speed of them."""
        seen = self.turns[:turns]
        right = [turn for turn in seen if turn.correct]
        best = max(right, key=lambda turn: turn.speedup or 0.0, default=seen[-1] if seen else None)
        return ReportedSample(
            trajectory_id=self.trajectory_id, problem=self.problem, problem_hash="", suite="", policy="", options="",
            number=self.sample, finished=self.finished, stop_reason=self.stop_reason,
            compiled=any(turn.compiled for turn in seen), correct=bool(right), judged_on=best.judged_on if best else "",
            speedup=best.speedup if best else None, fault=best.fault if best else "no answer",
            cost=Cost(turns=len(seen), tokens=sum(turn.prompt_tokens + turn.completion_tokens for turn in seen),
                      policy_seconds=sum(turn.policy_seconds for turn in seen),
                      tool_seconds=sum(turn.tool_seconds for turn in seen)),
        )  # fmt: skip


def read_rollouts(
    store: Store,
    run: str,
    keys: Collection[str],
    families: Mapping[str, str],
    solutions: Mapping[str, str],
) -> list[Rollout]:
    """Reads rollouts of the run's trajectories with these keys (problem and settings), oldest first.

    Turns that are not judged yet are left out.
    """
    rows = store.trajectories(TrajectoryFilter(run=run), limit=None, newest=False)
    return [
        Rollout(
            trajectory_id=row.id, problem=row.problem, family=families[row.problem], sample=row.sample,
            finished=row.finished is not None, stop_reason=row.stop_reason or "",
            turns=tuple(_turned(turn, solutions.get(row.problem)) for turn in store.turns(row.id) if turn.report),
        )
        for row in rows
        if row.key in keys
    ]  # fmt: skip


def _turned(turn: Turn, known: str | None) -> RolloutTurn:
    report, completion = turn.report, turn.completion
    assert report is not None
    built, source = passed_compile_rung(report), turn.source
    light = None
    if source is not None:
        light = CheckedText(
            patterns=has_patterns(source),
            overlap=None if known is None else overlap(source, known),
            compiled=built,
            correct=report.correct,
        )
    return RolloutTurn(
        compiled=built, correct=report.correct, speedup=report.speedup if report.judged_on not in ("", "cpu") else None,
        judged_on=report.judged_on, fault=report.failure.fault.value if report.failure else "",
        prompt_tokens=completion.usage.prompt_tokens if completion else 0,
        completion_tokens=completion.usage.completion_tokens if completion else 0,
        policy_seconds=completion.latency if completion else 0.0, tool_seconds=turn.tool_seconds or 0.0, light=light,
    )  # fmt: skip


def drafts(rollouts: Iterable[Rollout]) -> Sequence[RolloutTurn]:
    """Returns the first turn of each rollout."""
    return [rollout.turns[0] for rollout in rollouts if rollout.turns]
