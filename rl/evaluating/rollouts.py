"""Reads the rollouts of an evaluation from the store, turn by turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kernelwright.agent.reporting.samples import Cost, ReportedSample, passed_compile_rung
from kernelwright.policies.base import Value
from kernelwright.rl.evaluating.text_checks import CheckedText, has_patterns, overlap
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter, Turn


class RolloutTurn(Value):
    """A turn of a rollout, with its verdict and costs."""

    compiled: bool
    correct: bool
    speedup: float | None = None
    """The speedup over eager PyTorch, if correct and judged on a GPU."""
    judged_on: str = ""
    fault: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    policy_seconds: float = 0.0
    tool_seconds: float = 0.0
    light: CheckedText | None = None
    """Text checks of the candidate; None for a reply without code."""


class Rollout(Value):
    """An attempt at a problem: a draft, and repairs until the candidate is correct or the turns
    are spent.
    """

    trajectory_id: int
    problem: str
    family: str
    sample: int
    finished: bool
    stop_reason: str
    turns: tuple[RolloutTurn, ...]

    def within(self, turns: int) -> ReportedSample:
        """Returns the rollout cut to a number of turns: correct if any of them is, with their
        best speed.
        """
        allowed = self.turns[:turns]
        correct = [turn for turn in allowed if turn.correct]
        last = allowed[-1] if allowed else None
        best = max(correct, key=lambda turn: turn.speedup or 0.0, default=last)
        cost = Cost(
            turns=len(allowed),
            tokens=sum(turn.prompt_tokens + turn.completion_tokens for turn in allowed),
            policy_seconds=sum(turn.policy_seconds for turn in allowed),
            tool_seconds=sum(turn.tool_seconds for turn in allowed),
        )
        return ReportedSample(
            trajectory_id=self.trajectory_id,
            problem=self.problem,
            problem_hash="",
            suite="",
            policy="",
            options="",
            number=self.sample,
            finished=self.finished,
            stop_reason=self.stop_reason,
            compiled=any(turn.compiled for turn in allowed),
            correct=bool(correct),
            judged_on=best.judged_on if best else "",
            speedup=best.speedup if best else None,
            fault=best.fault if best else "no answer",
            cost=cost,
        )


def read_rollouts(
    store: Store,
    run: str,
    keys: Collection[str],
    families: Mapping[str, str],
    solutions: Mapping[str, str],
) -> list[Rollout]:
    """Reads rollouts of the run's trajectories with these keys (problem and settings), oldest
    first.

    Turns without a verdict are left out.
    """
    rollouts = []
    for row in store.trajectories(TrajectoryFilter(run=run), limit=None, newest=False):
        if row.key not in keys:
            continue
        solution = solutions.get(row.problem)
        turns = [_rollout_turn(turn, solution) for turn in store.turns(row.id) if turn.report]
        rollouts.append(
            Rollout(
                trajectory_id=row.id,
                problem=row.problem,
                family=families[row.problem],
                sample=row.sample,
                finished=row.finished is not None,
                stop_reason=row.stop_reason or "",
                turns=tuple(turns),
            )
        )
    return rollouts


def _rollout_turn(turn: Turn, solution: str | None) -> RolloutTurn:
    report, completion, source = turn.report, turn.completion, turn.source
    assert report is not None
    compiled = passed_compile_rung(report)
    light = None
    if source is not None:
        light = CheckedText(
            patterns=has_patterns(source),
            overlap=None if solution is None else overlap(source, solution),
            compiled=compiled,
            correct=report.correct,
        )
    on_gpu = report.judged_on not in ("", "cpu")
    return RolloutTurn(
        compiled=compiled,
        correct=report.correct,
        speedup=report.speedup if on_gpu else None,
        judged_on=report.judged_on,
        fault=report.failure.fault.value if report.failure else "",
        prompt_tokens=completion.usage.prompt_tokens if completion else 0,
        completion_tokens=completion.usage.completion_tokens if completion else 0,
        policy_seconds=completion.latency if completion else 0.0,
        tool_seconds=turn.tool_seconds or 0.0,
        light=light,
    )


def drafts(rollouts: Iterable[Rollout]) -> Sequence[RolloutTurn]:
    """Returns the first turn of each rollout."""
    return [rollout.turns[0] for rollout in rollouts if rollout.turns]
