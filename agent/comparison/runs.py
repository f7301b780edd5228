"""Compares batch runs problem by problem and sample by sample."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from kernelwright.agent.comparison.sides import Metrics, Side, side_of, sum_metrics
from kernelwright.agent.comparison.trajectories import DivergenceKind, find_divergence
from kernelwright.agent.reporting.figures import by_problem
from kernelwright.agent.reporting.pairing import RunComparison, compare_runs
from kernelwright.agent.reporting.samples import read_samples
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
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


Held = dict[str, list[tuple[Side, list[Entry]]]]
"""Trajectories of each problem, with their turns."""


def compare_batches(store: Store, names: Sequence[str]) -> ComparedRuns:
    """Compares batch runs. Raises InputError if a run has no trajectory."""
    held = [_held(store, name) for name in names]
    problems = list(dict.fromkeys(itertools.chain(*held)))
    pairs = [_pairs(held[0], run_trajectories) for run_trajectories in held[1:]]
    samples = [read_samples(store, TrajectoryFilter(run=name)) for name in names]
    attempts = [by_problem(run_samples, problems) for run_samples in samples]
    return ComparedRuns(
        sides=tuple(
            _side(name, run_trajectories)
            for name, run_trajectories in zip(names, held, strict=True)
        ),
        partings=tuple(
            dict(
                Counter(kind.value for divergences in run_pairs.values() for kind, _ in divergences)
            )
            for run_pairs in pairs
        ),
        tests=tuple(tuple(compare_runs(attempts[0], other)) for other in attempts[1:]),
        problems=tuple(_row(problem, held, pairs[0]) for problem in problems),
    )


def _held(store: Store, name: str) -> Held:
    entries: dict[int, list[Entry]] = {}
    rows: dict[int, Trajectory] = {}
    for row in store.trajectories(TrajectoryFilter(run=name), limit=None, newest=False):
        rows[row.id] = row
    for entry in store.candidates(CandidateFilter(run=name), order=Order.OLDEST, limit=None):
        entries.setdefault(entry.trajectory.id, []).append(entry)
    if not rows:
        raise InputError(
            f"run {name!r} holds no trajectory yet: agent batch --run {name} goes on with it"
        )
    trajectories: Held = {}
    for id, row in rows.items():
        trajectories.setdefault(row.problem, []).append(
            (side_of(row, entries.get(id, []), name), entries.get(id, []))
        )
    return trajectories


def _side(name: str, held: Held) -> RunSide:
    sides = [side for problem_trajectories in held.values() for side, _ in problem_trajectories]
    return RunSide(
        run=name,
        policies=tuple(dict.fromkeys(side.policy for side in sides)),
        problems=len(held),
        metrics=sum_metrics([side.metrics for side in sides]),
    )


def _pairs(first: Held, other: Held) -> dict[str, list[tuple[DivergenceKind, int | None]]]:
    """Returns the divergences between paired samples of each common problem, paired in order of
    sample number.
    """
    divergences: dict[str, list[tuple[DivergenceKind, int | None]]] = {}
    for problem in first.keys() & other.keys():
        pairs = zip(
            *(sorted(held[problem], key=lambda own: own[0].sample) for held in (first, other)),
            strict=False,
        )
        parted = [find_divergence(one[0], one[1], two[0], two[1]) for one, two in pairs]
        divergences[problem] = [(part.kind, part.turn) for part in parted]
    return divergences


def _row(
    problem: str, held: Sequence[Held], pairs: Mapping[str, list[tuple[DivergenceKind, int | None]]]
) -> ProblemRow:
    parted = pairs.get(problem, [])
    kinds = Counter(kind.value for kind, _ in parted)
    descriptions = [
        kind.replace("_", " ") + (f" x{count}" if len(parted) > 1 else "")
        for kind, count in kinds.most_common()
    ]
    return ProblemRow(
        problem=problem,
        sides=tuple(
            sum_metrics([side.metrics for side, _ in run_trajectories[problem]])
            if problem in run_trajectories
            else None
            for run_trajectories in held
        ),
        parting=", ".join(descriptions),
        turn=min((turn for _, turn in parted if turn is not None), default=None),
    )
