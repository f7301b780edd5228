"""Batch runs side by side: problem by problem, sample by sample."""

from __future__ import annotations

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
    """One batch of a comparison."""

    run: str
    policies: tuple[str, ...]
    problems: int
    metrics: Metrics


class ProblemRow(Value):
    """One problem of a comparison of batches."""

    problem: str
    sides: tuple[Metrics | None, ...]
    """One side for each run, in their order; None where a run has no such problem."""
    parting: str
    """The divergences of the second run's samples from the first's: the kind and the number of each; empty where no
    sample is in both.
    """
    turn: int | None
    """The first turn at which any pair parts."""


class ComparedRuns(Value):
    """Batches set side by side, problem by problem."""

    sides: tuple[RunSide, ...]
    partings: tuple[dict[str, int], ...]
    """For each run after the first, the number of pairs of samples by kind of divergence."""
    tests: tuple[tuple[RunComparison, ...], ...]
    """The first run against each other one."""
    problems: tuple[ProblemRow, ...]


Held = dict[str, list[tuple[Side, list[Entry]]]]
"""The trajectories of each problem, with their turns."""


def compare_batches(store: Store, names: Sequence[str]) -> ComparedRuns:
    """Raises InputError where a run has no trajectory."""
    held = [_held(store, name) for name in names]
    problems = list(dict.fromkeys(problem for own in held for problem in own))
    pairs = [_pairs(held[0], own) for own in held[1:]]
    samples = [read_samples(store, TrajectoryFilter(run=name)) for name in names]
    attempts = [by_problem(own, problems) for own in samples]
    return ComparedRuns(
        sides=tuple(_side(name, own) for name, own in zip(names, held, strict=True)),
        partings=tuple(
            dict(Counter(kind.value for found in own.values() for kind, _ in found))
            for own in pairs
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
    found: Held = {}
    for id, row in rows.items():
        found.setdefault(row.problem, []).append(
            (side_of(row, entries.get(id, []), name), entries.get(id, []))
        )
    return found


def _side(name: str, held: Held) -> RunSide:
    sides = [side for own in held.values() for side, _ in own]
    return RunSide(
        run=name,
        policies=tuple(dict.fromkeys(side.policy for side in sides)),
        problems=len(held),
        metrics=sum_metrics([side.metrics for side in sides]),
    )


def _pairs(first: Held, other: Held) -> dict[str, list[tuple[DivergenceKind, int | None]]]:
    """Samples of one problem in the order of their numbers, one against one."""
    found: dict[str, list[tuple[DivergenceKind, int | None]]] = {}
    for problem in first.keys() & other.keys():
        pairs = zip(
            *(sorted(held[problem], key=lambda own: own[0].sample) for held in (first, other)),
            strict=False,
        )
        parted = [find_divergence(one[0], one[1], two[0], two[1]) for one, two in pairs]
        found[problem] = [(part.kind, part.turn) for part in parted]
    return found


def _row(
    problem: str, held: Sequence[Held], pairs: Mapping[str, list[tuple[DivergenceKind, int | None]]]
) -> ProblemRow:
    parted = pairs.get(problem, [])
    kinds = Counter(kind.value for kind, _ in parted)
    said = [
        kind.replace("_", " ") + (f" x{count}" if len(parted) > 1 else "")
        for kind, count in kinds.most_common()
    ]
    return ProblemRow(
        problem=problem,
        sides=tuple(
            sum_metrics([side.metrics for side, _ in own[problem]]) if problem in own else None
            for own in held
        ),
        parting=", ".join(said),
        turn=min((turn for _, turn in parted if turn is not None), default=None),
    )
