"""Side of a comparison: result and cost of a trajectory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelwright.agent.reporting.samples import Cost, best_entry, cost_of
from kernelwright.policies.base import Value
from kernelwright.store.models import Trajectory, Verdict
from kernelwright.store.records import Entry
from kernelwright.tools.report import Rung


class Metrics(Value):
    """Figures of a trajectory, or totals over several trajectories."""

    trajectories: int = 1
    correct: int = 0
    """Number of trajectories with a correct candidate."""
    cost: Cost = Cost()
    seconds: float | None = None
    """Seconds from beginning to end as counted by the runs; None if any value is missing."""
    best_speedup: float | None = None
    """Speedup of the fastest correct candidate on a GPU."""
    judged_on: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    """Fingerprints of the environments of measured speeds, which are comparable only within an
    environment.
    """
    first_correct: int | None = None
    """Number of the first correct turn, from 1; the minimum over several trajectories."""
    rungs: dict[str, int] = {}
    """Number of candidates by highest rung entered."""
    faults: dict[str, int] = {}

    @property
    def highest(self) -> str:
        """Highest rung entered by any candidate."""
        return next((rung.value for rung in reversed(Rung) if self.rungs.get(rung.value)), "")


class Side(Value):
    """Trajectory in a comparison."""

    trajectory_id: int
    run: str
    problem: str
    problem_hash: str
    policy: str
    sample: int
    forked: str = ""
    """Turn and trajectory from which this trajectory was forked; empty if not forked."""
    stopped: str
    best_turn: int | None
    metrics: Metrics


def side_of(row: Trajectory, entries: Sequence[Entry], run: str = "", forked: str = "") -> Side:
    """Describes a trajectory as a side of a comparison; `entries` are its candidates in order."""
    best = best_entry(entries)
    right = best is not None and best.verdict is not None and best.verdict.correct
    return Side(
        trajectory_id=row.id,
        run=run,
        problem=row.problem,
        problem_hash=row.problem_hash,
        policy=row.policy,
        sample=row.sample,
        forked=forked,
        stopped=row.stop_reason or "not yet",
        best_turn=best.candidate.turn + 1 if best is not None and right else None,
        metrics=metrics_of(row, entries),
    )


def metrics_of(row: Trajectory, entries: Sequence[Entry]) -> Metrics:
    """Summarises a trajectory; `entries` are its candidates in order."""
    verdicts: list[Verdict] = []
    correct_turns: list[int] = []
    timed: list[Verdict] = []
    speedups: list[float] = []
    for entry in entries:
        verdict = entry.verdict
        if verdict is None:
            continue
        verdicts.append(verdict)
        if verdict.correct:
            correct_turns.append(entry.candidate.turn + 1)
        # A CPU has no meaningful speed: Triton's interpreter runs there.
        if verdict.correct and verdict.speedup is not None and verdict.judged_on != "cpu":
            timed.append(verdict)
            speedups.append(verdict.speedup)
    seconds = (row.spent or {}).get("seconds")
    return Metrics(
        correct=int(bool(correct_turns)),
        cost=cost_of(entries),
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        best_speedup=max(speedups, default=None),
        judged_on=tuple(sorted({verdict.judged_on for verdict in verdicts} - {""})),
        environments=tuple(sorted({verdict.fingerprint for verdict in timed})),
        first_correct=correct_turns[0] if correct_turns else None,
        rungs=dict(Counter(verdict.rung.value for verdict in verdicts)),
        faults=dict(Counter(verdict.fault.value for verdict in verdicts if verdict.fault)),
    )


def sum_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Adds the figures of several trajectories; the speedup is their maximum."""
    cost = Cost()
    rungs: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    judged_on: set[str] = set()
    environments: set[str] = set()
    seconds: float | None = 0.0
    for part in parts:
        cost = cost.plus(part.cost)
        rungs.update(part.rungs)
        faults.update(part.faults)
        judged_on.update(part.judged_on)
        environments.update(part.environments)
        # One trajectory without stored seconds makes the sum unknown.
        if seconds is not None:
            seconds = None if part.seconds is None else seconds + part.seconds
    first_turns = [part.first_correct for part in parts if part.first_correct]
    speeds = [part.best_speedup for part in parts if part.best_speedup is not None]
    return Metrics(
        trajectories=len(parts),
        correct=sum(part.correct for part in parts),
        cost=cost,
        seconds=seconds,
        best_speedup=max(speeds, default=None),
        judged_on=tuple(sorted(judged_on)),
        environments=tuple(sorted(environments)),
        first_correct=min(first_turns, default=None),
        rungs=dict(rungs),
        faults=dict(faults),
    )
