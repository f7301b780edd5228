"""Which trajectories a command is about: a number, `last`, a run's name, or all."""

from __future__ import annotations

from kernelwright.agent.reporting.samples import ReportedSample, read_samples, sample_of
from kernelwright.errors import InputError
from kernelwright.store.database import Store
from kernelwright.store.lineage import history
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Order, TrajectoryFilter


def trajectory_id(store: Store, asked: str) -> int:
    """`17` or `last`. Raises InputError; StoreError where there is none of that number."""
    if asked.isdigit():
        return store.trajectory(int(asked)).id
    if asked != "last":
        runs = [run.name for run in store.runs()]
        if asked in runs:
            raise InputError(
                f"{asked!r} is a run of {store.where}, and one trajectory is wanted: give its number, or last "
                "(agent inspect lists them)"
            )
        raise InputError(
            f"{asked!r} is no trajectory and no run of {store.where}: give its number, or last, or a run "
            f"(its runs: {', '.join(runs[:8]) or 'none yet'})"
        )
    newest = store.trajectories(limit=1)
    if not newest:
        raise InputError(f"{store.where} holds no trajectory yet: agent solve writes the first")
    return newest[0].id


def fork_point(store: Store, trajectory: Trajectory, number: int) -> int:
    """The candidate of that turn, counted from 1 as everything that is shown counts. Raises InputError."""
    judged = {
        turn.turn + 1: turn.candidate_id
        for turn in history(store, trajectory)
        if turn.report is not None
    }
    if number not in judged:
        there = f"turns 1 to {max(judged)}" if judged else "no turn with a verdict"
        raise InputError(f"--fork {number}: trajectory {trajectory.id} has {there}")
    return judged[number]


def candidate_filter(store: Store, id: str | None, run: str | None) -> CandidateFilter:
    """Selects the candidates of one trajectory, of a run (which `id` may name, too), or all. Raises InputError."""
    if id is not None and run is not None:
        raise InputError("give a trajectory or --run, not both")
    known = [row.name for row in store.runs()]
    if id is not None and not (id in known and id != "last" and not id.isdigit()):
        return CandidateFilter(trajectory_id=trajectory_id(store, id))
    run = run or id
    if run is not None and run not in known:
        raise InputError(
            f"no run {run!r} in {store.where}: its runs are {', '.join(known[:8]) or 'none yet'}"
        )
    return CandidateFilter(run=run)


def samples_of(store: Store, id: str | None, run: str | None) -> list[ReportedSample]:
    """Raises InputError where there is none."""
    chosen = candidate_filter(store, id, run)
    if chosen.trajectory_id is not None:
        entries = store.candidates(chosen, order=Order.OLDEST, limit=None)
        return [sample_of(store, store.trajectory(chosen.trajectory_id), entries)]
    samples = read_samples(store, TrajectoryFilter(run=chosen.run))
    if not samples:
        raise InputError(f"{store.where} holds no trajectory yet: agent solve writes the first")
    return samples


def references(store: Store, id: str | None, run: str | None) -> dict[str, str]:
    """The source of each problem among them, by its hash."""
    first: dict[str, Trajectory] = {}
    chosen = candidate_filter(store, id, run)
    if chosen.trajectory_id is not None:
        rows = [store.trajectory(chosen.trajectory_id)]
    else:
        rows = store.trajectories(TrajectoryFilter(run=chosen.run), limit=None)
    for row in rows:
        first.setdefault(row.problem_hash, row)
    return {hash: store.problem(row.id).source for hash, row in first.items()}
