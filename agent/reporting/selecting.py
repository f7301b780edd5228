"""Selects the trajectories of a command: by number, `last`, the name of a run, or all."""

from __future__ import annotations

from kernelwright.agent.reporting.samples import ReportedSample, read_samples, sample_of
from kernelwright.errors import InputError
from kernelwright.store.database import Store
from kernelwright.store.lineage import history
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Order, TrajectoryFilter


def trajectory_id(store: Store, text: str) -> int:
    """Parses `17` or `last`. Raises InputError; StoreError if there is no trajectory of that
    number.
    """
    if text.isdigit():
        return store.trajectory(int(text)).id
    if text != "last":
        runs = [run.name for run in store.runs()]
        if text in runs:
            raise InputError(
                f"{text!r} is a run of {store.where}, and one trajectory is wanted: give its number, or last "
                "(agent inspect lists them)"
            )
        raise InputError(
            f"{text!r} is no trajectory and no run of {store.where}: give its number, or last, or a run "
            f"(its runs: {', '.join(runs[:8]) or 'none yet'})"
        )
    newest = store.trajectories(limit=1)
    if not newest:
        raise InputError(f"{store.where} holds no trajectory yet: agent solve writes the first")
    return newest[0].id


def fork_point(store: Store, trajectory: Trajectory, number: int) -> int:
    """Returns the candidate of a turn; turns are counted from 1, as in all displays. Raises
    InputError.
    """
    judged: dict[int, int] = {}
    for turn in history(store, trajectory):
        if turn.report is not None:
            judged[turn.turn + 1] = turn.candidate_id
    if number not in judged:
        available = f"turns 1 to {max(judged)}" if judged else "no turn with a verdict"
        raise InputError(f"--fork {number}: trajectory {trajectory.id} has {available}")
    return judged[number]


def candidate_filter(store: Store, id: str | None, run: str | None) -> CandidateFilter:
    """Selects the candidates of one trajectory, of a run (`id` may be a run's name, too), or all.
    Raises InputError.
    """
    if id is not None and run is not None:
        raise InputError("give a trajectory or --run, not both")
    run_names = [row.name for row in store.runs()]
    # A run may be named `last` or `17`: these words always mean trajectories.
    names_a_run = id in run_names and id != "last" and not (id or "").isdigit()
    if id is not None and not names_a_run:
        return CandidateFilter(trajectory_id=trajectory_id(store, id))
    run = run or id
    if run is not None and run not in run_names:
        raise InputError(
            f"no run {run!r} in {store.where}: its runs are {', '.join(run_names[:8]) or 'none yet'}"
        )
    return CandidateFilter(run=run)


def samples_of(store: Store, id: str | None, run: str | None) -> list[ReportedSample]:
    """Returns the selected samples. Raises InputError if there are none."""
    chosen = candidate_filter(store, id, run)
    if chosen.trajectory_id is not None:
        entries = store.candidates(chosen, order=Order.OLDEST, limit=None)
        return [sample_of(store, store.trajectory(chosen.trajectory_id), entries)]
    samples = read_samples(store, TrajectoryFilter(run=chosen.run))
    if not samples:
        raise InputError(f"{store.where} holds no trajectory yet: agent solve writes the first")
    return samples


def references(store: Store, id: str | None, run: str | None) -> dict[str, str]:
    """Returns the source of each problem of the selected trajectories, by its hash."""
    first: dict[str, Trajectory] = {}
    chosen = candidate_filter(store, id, run)
    if chosen.trajectory_id is not None:
        rows = [store.trajectory(chosen.trajectory_id)]
    else:
        rows = store.trajectories(TrajectoryFilter(run=chosen.run), limit=None)
    for row in rows:
        first.setdefault(row.problem_hash, row)
    return {hash: store.problem(row.id).source for hash, row in first.items()}
