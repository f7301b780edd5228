"""Begins, resumes and stops trajectories. Each function is one transaction of the store."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue
from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.engine import Connection
from sqlmodel import col

from kernelwright.store.blobs import pack_text, save_blobs
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.lease import LEASE_SECONDS, is_free
from kernelwright.store.models import BatchRun, Candidate, Trajectory
from kernelwright.store.records import TrajectoryStart
from kernelwright.store.rows import (
    add_and_read,
    add_row,
    check_there,
    existing_row,
    row_from_values,
    update_row,
)
from kernelwright.tools.report import clean_text

TIME_LIMIT = "wall"
"""The stop reason of a trajectory that ended at its time limit: the same command gives it the time once more."""
_RUN = select(col(BatchRun.id)).where(col(BatchRun.name) == bindparam("name"))
_IN_RUN = select(Trajectory).where(
    col(Trajectory.run_id) == bindparam("run_id"),
    col(Trajectory.key) == bindparam("key"),
    col(Trajectory.sample) == bindparam("sample"),
)


def open_run(
    connection: Connection, name: str, options: dict[str, JsonValue], now: float
) -> BatchRun:
    """The run of this name, made where there is none; the options of the first time stay."""
    lock_trajectories(connection)
    if (id := connection.execute(_RUN, {"name": name}).scalar()) is None:
        id = add_row(connection, BatchRun, {"name": name, "created": now, "options": options})
    return existing_row(connection, BatchRun, id)


def begin_in_run(
    connection: Connection, start: TrajectoryStart, run_id: int, sample: int, owner: str, now: float
) -> Trajectory:
    """Returns the run's trajectory with this key and number: a new one, one that is resumed, or a finished one
    unchanged. Raises StoreError (BUSY) where a live process works on it.
    """
    check_there(connection, BatchRun, run_id)
    lock_trajectories(connection)
    place = {"run_id": run_id, "sample": sample}
    if (found := connection.execute(_IN_RUN, {**place, "key": start.key}).first()) is None:
        return _new(connection, start, owner, now, **place)
    row = row_from_values(Trajectory, found._asdict())
    return row if row.finished is not None else _resumed(connection, row, owner, now)


def begin(
    connection: Connection,
    start: TrajectoryStart,
    resume: bool,
    forked_from: int | None,
    owner: str,
    now: float,
) -> Trajectory:
    """Outside of a run: resumes the latest trajectory with this key and origin that no process works on and that is
    unfinished or ended at its time limit, or begins a new one.
    """
    lock_trajectories(connection)
    same = (col(Trajectory.run_id).is_(None), col(Trajectory.key) == start.key)
    if resume:
        origin = col(Trajectory.forked_from_id)
        forked = origin.is_(None) if forked_from is None else origin == forked_from
        may_go_on = or_(
            col(Trajectory.finished).is_(None), col(Trajectory.stop_reason) == TIME_LIMIT
        )
        unfinished = (*same, may_go_on, forked)
        held_by = select(col(Trajectory.id), col(Trajectory.owner), col(Trajectory.lease)).where(
            *unfinished
        )
        for id, holder, lease in connection.execute(
            held_by.order_by(col(Trajectory.id).desc())
        ).all():
            if is_free(holder, lease, owner, now):
                return _resumed(connection, existing_row(connection, Trajectory, id), owner, now)
    if forked_from is not None:
        check_there(connection, Candidate, forked_from)
    sample = connection.execute(
        select(func.count()).select_from(Trajectory).where(*same)
    ).scalar_one()
    return _new(connection, start, owner, now, sample=sample, forked_from_id=forked_from)


def lease_fields(id: int, holder: str, lease: float, owner: str, now: float) -> dict[str, Any]:
    """The fields that make `owner` the one who works on it, for another hour.

    Raises StoreError (BUSY) where `holder` lives.
    """
    if not is_free(holder, lease, owner, now):
        raise StoreError(
            f"trajectory {id} is worked on by {holder.rpartition('/')[0]}: let it finish, or stop it",
            StoreTrouble.BUSY,
        )
    return {"owner": owner, "lease": now + LEASE_SECONDS, "updated": now}


def _resumed(connection: Connection, row: Trajectory, owner: str, now: float) -> Trajectory:
    taken = lease_fields(row.id, row.owner, row.lease, owner, now)
    update_row(
        connection,
        Trajectory,
        row.id,
        {**taken, "stop_reason": None, "message": "", "finished": None},
    )
    return existing_row(connection, Trajectory, row.id)


def _new(
    connection: Connection, start: TrajectoryStart, owner: str, now: float, **place: Any
) -> Trajectory:
    problem = start.problem
    [reference_id] = save_blobs(connection, [pack_text(problem.source)])
    values = {
        "key": start.key,
        "problem": problem.name,
        "problem_hash": problem.hash,
        "suite": problem.suite,
        "reference_id": reference_id,
        "created": now,
        **start.model_dump(include={"policy", "options", "goal", "budgets", "seed", "program"}),
        **lease_fields(0, "", 0.0, owner, now),
        **place,
    }
    return add_and_read(connection, Trajectory, values)


def lock_trajectories(connection: Connection) -> None:
    """Two processes that look for the same one at once. SQLite's writer is alone already."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE trajectory IN SHARE ROW EXCLUSIVE MODE")


def put_best(connection: Connection, trajectory_id: int, best_id: int | None) -> None:
    """Sets the best candidate of a trajectory; `best_id` None where no candidate is correct any more."""
    if best_id is not None:
        check_there(connection, Candidate, best_id)
    check_there(connection, Trajectory, trajectory_id)
    update_row(connection, Trajectory, trajectory_id, {"best_id": best_id})


def stop(
    connection: Connection,
    trajectory_id: int,
    reason: str,
    *,
    message: str,
    best_id: int | None,
    spent: dict[str, JsonValue] | None,
    finished: float | None,
    now: float,
) -> Trajectory:
    """Writes the stop reason and lets go of it. Without `finished` the same command goes on later."""
    values: dict[str, Any] = {
        "stop_reason": reason,
        "message": clean_text(message, 400),
        "finished": finished,
    }
    if best_id is not None:
        check_there(connection, Candidate, best_id)
        values["best_id"] = best_id
    if spent is not None:
        values["spent"] = spent
    update_row(
        connection, Trajectory, trajectory_id, {**values, "updated": now, "owner": "", "lease": 0.0}
    )
    return existing_row(connection, Trajectory, trajectory_id)
