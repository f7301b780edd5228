"""Begins, resumes and stops trajectories.

Each function runs inside one transaction of the store.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select
from sqlalchemy.engine import Connection
from sqlmodel import col

from kernelwright.store.blobs import pack_text, save_blobs
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.lease import LEASE_SECONDS, is_free
from kernelwright.store.models import BatchRun, Candidate, Trajectory
from kernelwright.store.records import StopOutcome, TrajectoryStart
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
"""Stop reason of a trajectory that reached its time limit.

Repeating the command continues such a trajectory with a fresh limit.
"""

# Statements are built once: SQLAlchemy then renders their SQL text only once per process.
_RUN = select(col(BatchRun.id)).where(col(BatchRun.name) == bindparam("name"))
_IN_RUN = select(Trajectory).where(
    col(Trajectory.run_id) == bindparam("run_id"),
    col(Trajectory.key) == bindparam("key"),
    col(Trajectory.sample) == bindparam("sample"),
)


def open_run(
    connection: Connection, name: str, options: dict[str, JsonValue], now: float
) -> BatchRun:
    """Returns the run with this name and creates the run if none exists.

    An existing run keeps its first options.
    """
    lock_trajectories(connection)
    if (id := connection.execute(_RUN, {"name": name}).scalar()) is None:
        id = add_row(connection, BatchRun, {"name": name, "created": now, "options": options})
    return existing_row(connection, BatchRun, id)


def begin_in_run(
    connection: Connection, start: TrajectoryStart, run_id: int, sample: int, owner: str, now: float
) -> Trajectory:
    """Returns the trajectory of a run with this key and sample number: new, resumed, or finished
    and unchanged.

    Raises StoreError (BUSY) if a live process works on the trajectory.
    """
    check_there(connection, BatchRun, run_id)
    lock_trajectories(connection)
    run_columns = {"run_id": run_id, "sample": sample}
    if (existing := connection.execute(_IN_RUN, {**run_columns, "key": start.key}).first()) is None:
        return _new(connection, start, owner, now, **run_columns)
    row = row_from_values(Trajectory, existing._asdict())
    if row.finished is not None:
        return row
    return _resumed(connection, row, owner, now)


def begin(
    connection: Connection,
    start: TrajectoryStart,
    resume: bool,
    forked_from: int | None,
    owner: str,
    now: float,
) -> Trajectory:
    """Resumes or creates a trajectory outside of a run.

    Resumes the latest trajectory with equal key and fork origin which is unfinished or reached
    its time limit, and on which no process works. Creates a new trajectory if there is none, or
    if `resume` is false.
    """
    lock_trajectories(connection)
    same_key = (col(Trajectory.run_id).is_(None), col(Trajectory.key) == start.key)
    if resume:
        for id, holder, lease in connection.execute(_resumable(same_key, forked_from)).all():
            if is_free(holder, lease, owner, now):
                return _resumed(connection, existing_row(connection, Trajectory, id), owner, now)
    if forked_from is not None:
        check_there(connection, Candidate, forked_from)
    # Samples of equal key are numbered in order of creation.
    sample = connection.execute(
        select(func.count()).select_from(Trajectory).where(*same_key)
    ).scalar_one()
    return _new(connection, start, owner, now, sample=sample, forked_from_id=forked_from)


def _resumable(
    same_key: tuple[ColumnElement[bool], ...], forked_from: int | None
) -> Select[int, str, float]:
    """Selects id, owner and lease of trajectories to resume, newest first."""
    origin = col(Trajectory.forked_from_id)
    same_origin = origin.is_(None) if forked_from is None else origin == forked_from
    open_ended = or_(col(Trajectory.finished).is_(None), col(Trajectory.stop_reason) == TIME_LIMIT)
    columns = (col(Trajectory.id), col(Trajectory.owner), col(Trajectory.lease))
    statement = select(*columns).where(*same_key, open_ended, same_origin)
    return statement.order_by(col(Trajectory.id).desc())


def lease_fields(id: int, holder: str, lease: float, owner: str, now: float) -> dict[str, Any]:
    """Returns the column values that make `owner` the holder of trajectory `id` for another hour.

    Raises StoreError (BUSY) if the present `holder` is alive.
    """
    if not is_free(holder, lease, owner, now):
        raise StoreError(
            f"trajectory {id} is worked on by {holder.rpartition('/')[0]}: let it finish, or stop it",
            StoreTrouble.BUSY,
        )
    return {"owner": owner, "lease": now + LEASE_SECONDS, "updated": now}


def _resumed(connection: Connection, row: Trajectory, owner: str, now: float) -> Trajectory:
    lease_columns = lease_fields(row.id, row.owner, row.lease, owner, now)
    update_row(
        connection,
        Trajectory,
        row.id,
        {**lease_columns, "stop_reason": None, "message": "", "finished": None},
    )
    return existing_row(connection, Trajectory, row.id)


def _new(
    connection: Connection, start: TrajectoryStart, owner: str, now: float, **columns: int | None
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
        **columns,
    }
    return add_and_read(connection, Trajectory, values)


def lock_trajectories(connection: Connection) -> None:
    """Locks the trajectory table on PostgreSQL, so that two processes cannot create equal
    trajectories. SQLite needs no lock: the database has a single writer.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE trajectory IN SHARE ROW EXCLUSIVE MODE")


def put_best(connection: Connection, trajectory_id: int, best_id: int | None) -> None:
    """Sets the best candidate of a trajectory; None if no candidate is correct any more."""
    if best_id is not None:
        check_there(connection, Candidate, best_id)
    check_there(connection, Trajectory, trajectory_id)
    update_row(connection, Trajectory, trajectory_id, {"best_id": best_id})


def stop(
    connection: Connection,
    trajectory_id: int,
    outcome: StopOutcome,
    *,
    finished: float | None,
    now: float,
) -> Trajectory:
    """Writes the stop reason of a trajectory and releases the lease.

    A trajectory without `finished` can be resumed later.
    """
    values: dict[str, Any] = {
        "stop_reason": outcome.reason,
        "message": clean_text(outcome.message, 400),
        "finished": finished,
        "updated": now,
        # An empty owner releases the lease.
        "owner": "",
        "lease": 0.0,
    }
    if outcome.best_id is not None:
        check_there(connection, Candidate, outcome.best_id)
        values["best_id"] = outcome.best_id
    if outcome.spent is not None:
        values["spent"] = outcome.spent
    update_row(connection, Trajectory, trajectory_id, values)
    return existing_row(connection, Trajectory, trajectory_id)
