"""Compares batch runs problem by problem and sample by sample."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from kernelwright.agent.comparison.sides import Metrics, Side, side_of, sum_metrics
from kernelwright.agent.comparison.trajectories import DivergenceKind, find_divergence
from kernelwright.agent.reporting.figures import by_problem
from kernelwright.agent.reporting.pairing import RunComparison, compare_runs
from kernelwright.agent.reporting.samples import read_samples
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Entry, Order, TrajectoryFilter


class RunSide(Value):
    """Batch run in a comparison."""

    run: str
    policies: tuple[str, ...]
    problems: int
    metrics: Metrics


class ProblemRow(Value):
    """Problem in a comparison of runs."""

    problem: str
    sides: tuple[Metrics | None, ...]
    """Metrics for each run in order; None if the run lacks the problem."""
    parting: str
    """Counts of divergences of the second run's samples from the first's, by kind; empty without
    common samples.
    """
    turn: int | None
    """Earliest turn at which any pair diverges."""


class ComparedRuns(Value):
    """Comparison of batch runs, problem by problem."""

    sides: tuple[RunSide, ...]
    partings: tuple[dict[str, int], ...]
    """Number of sample pairs by kind of divergence, for each run after the first."""
    tests: tuple[tuple[RunComparison, ...], ...]
    """Statistical comparison of the first run with each other run."""
    problems: tuple[ProblemRow, ...]


RunTrajectories = dict[str, list[tuple[Side, list[Entry]]]]
"""Trajectories of a run by problem, with their candidates."""
PairDivergences = dict[str, list[tuple[DivergenceKind, int | None]]]
"""Divergences of paired samples by problem: kind and turn of each pair."""


def compare_batches(store: Store, names: Sequence[str]) -> ComparedRuns:
    """Compares batch runs. Raises InputError if a run has no trajectory."""
    runs = [_trajectories_of(store, name) for name in names]
    problems = list(dict.fromkeys(itertools.chain(*runs)))
    divergences = [_divergences(runs[0], run) for run in runs[1:]]
    attempts = []
    for name in names:
        samples = read_samples(store, TrajectoryFilter(run=name))
        attempts.append(by_problem(samples, problems))
    return ComparedRuns(
        sides=tuple(map(_side, names, runs)),
        partings=tuple(map(_count_kinds, divergences)),
        tests=tuple(tuple(compare_runs(attempts[0], other)) for other in attempts[1:]),
        problems=tuple(_row(problem, runs, divergences[0]) for problem in problems),
    )


def _count_kinds(divergences: PairDivergences) -> dict[str, int]:
    """Counts the pairs of samples by kind of divergence."""
    counts: Counter[str] = Counter()
    for problem_divergences in divergences.values():
        counts.update(kind.value for kind, _ in problem_divergences)
    return dict(counts)


def _trajectories_of(store: Store, name: str) -> RunTrajectories:
    """Reads the trajectories of a run. Raises InputError if there are none."""
    entries: dict[int, list[Entry]] = {}
    for entry in store.candidates(CandidateFilter(run=name), order=Order.OLDEST, limit=None):
        entries.setdefault(entry.trajectory.id, []).append(entry)
    by_name: RunTrajectories = {}
    for row in store.trajectories(TrajectoryFilter(run=name), limit=None, newest=False):
        candidates = entries.get(row.id, [])
        side = side_of(row, candidates, name)
        by_name.setdefault(row.problem, []).append((side, candidates))
    if not by_name:
        raise InputError(
            f"run {name!r} holds no trajectory yet: agent batch --run {name} goes on with it"
        )
    return by_name


def _side(name: str, run: RunTrajectories) -> RunSide:
    sides = [side for side, _ in itertools.chain(*run.values())]
    return RunSide(
        run=name,
        policies=tuple(dict.fromkeys(side.policy for side in sides)),
        problems=len(run),
        metrics=sum_metrics([side.metrics for side in sides]),
    )


def _divergences(first: RunTrajectories, other: RunTrajectories) -> PairDivergences:
    """Returns the divergences of samples of common problems, paired in order of sample number."""
    divergences: PairDivergences = {}
    for problem in first.keys() & other.keys():
        first_samples, other_samples = _by_sample(first[problem]), _by_sample(other[problem])
        divergences[problem] = []
        # A run with fewer samples leaves samples of the other run unpaired.
        for (side, entries), (other_side, other_entries) in zip(
            first_samples, other_samples, strict=False
        ):
            divergence = find_divergence(side, entries, other_side, other_entries)
            divergences[problem].append((divergence.kind, divergence.turn))
    return divergences


def _by_sample(trajectories: list[tuple[Side, list[Entry]]]) -> list[tuple[Side, list[Entry]]]:
    return sorted(trajectories, key=lambda trajectory: trajectory[0].sample)


def _row(problem: str, runs: Sequence[RunTrajectories], divergences: PairDivergences) -> ProblemRow:
    """Returns the row of a problem; `divergences` are those of the second run."""
    pairs = divergences.get(problem, [])
    descriptions: list[str] = []
    for kind, count in Counter(kind.value for kind, _ in pairs).most_common():
        suffix = f" x{count}" if len(pairs) > 1 else ""
        descriptions.append(kind.replace("_", " ") + suffix)
    sides: list[Metrics | None] = []
    for run in runs:
        metrics = [side.metrics for side, _ in run.get(problem, ())]
        sides.append(sum_metrics(metrics) if metrics else None)
    return ProblemRow(
        problem=problem,
        sides=tuple(sides),
        parting=", ".join(descriptions),
        turn=min((turn for _, turn in pairs if turn is not None), default=None),
    )
