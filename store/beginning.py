"""How trajectories begin, go on and stop. Each function is one transaction of the store."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue
from sqlalchemy import func, select
from sqlmodel import Session, col

from store.blobs import pack_text, save_blobs
from store.errors import StoreError, StoreTrouble
from store.lease import LEASE_SECONDS, is_free
from store.models import BatchRun, Candidate, Trajectory
from store.records import Start
from store.rows import add, change, the
from tools.results import clean_text


def open_run(session: Session, name: str, options: dict[str, JsonValue], now: float) -> BatchRun:
    """The run of this name, made where there is none; the options of the first time stay."""
    lock_trajectories(session)
    run = session.execute(select(BatchRun).where(col(BatchRun.name) == name)).scalar_one_or_none()
    if run is not None:
        return run
    return the(
        session, BatchRun, add(session.connection(), BatchRun, {"name": name, "created": now, "options": options})
    )


def begin_in_run(session: Session, start: Start, run_id: int, sample: int, owner: str, now: float) -> Trajectory:
    """The run's trajectory with this key and number: new, taken up again, or finished as it is.

    Raises StoreError (BUSY) where a live process works on it.
    """
    the(session, BatchRun, run_id)
    lock_trajectories(session)
    same = (col(Trajectory.run_id) == run_id, col(Trajectory.key) == start.key, col(Trajectory.sample) == sample)
    row = session.execute(select(Trajectory).where(*same)).scalar_one_or_none()
    if row is None:
        return _new(session, start, owner, now, run_id=run_id, sample=sample)
    return row if row.finished is not None else _resumed(session, row, owner, now)


def begin(session: Session, start: Start, resume: bool, forked_from: int | None, owner: str, now: float) -> Trajectory:
    """Outside a run: the latest unfinished one with this key and origin that nobody works on, or a new one."""
    lock_trajectories(session)
    same = (col(Trajectory.run_id).is_(None), col(Trajectory.key) == start.key)
    if resume:
        origin = col(Trajectory.forked_from_id)
        forked = origin.is_(None) if forked_from is None else origin == forked_from
        unfinished = (*same, col(Trajectory.finished).is_(None), forked)
        for row in session.execute(select(Trajectory).where(*unfinished).order_by(col(Trajectory.id).desc())).scalars():
            if is_free(row.owner, row.lease, owner, now):
                return _resumed(session, row, owner, now)
    if forked_from is not None:
        the(session, Candidate, forked_from)
    sample = session.execute(select(func.count()).select_from(Trajectory).where(*same)).scalar_one()
    return _new(session, start, owner, now, sample=sample, forked_from_id=forked_from)


def held(id: int, holder: str, lease: float, owner: str, now: float) -> dict[str, Any]:
    """The fields that make `owner` the one who works on it, for another hour. Raises StoreError (BUSY) where `holder` lives."""
    if not is_free(holder, lease, owner, now):
        raise StoreError(
            f"trajectory {id} is worked on by {holder.rpartition('/')[0]}: let it finish, or stop it", StoreTrouble.BUSY
        )
    return {"owner": owner, "lease": now + LEASE_SECONDS, "updated": now}


def _resumed(session: Session, row: Trajectory, owner: str, now: float) -> Trajectory:
    taken = held(row.id, row.owner, row.lease, owner, now)
    change(session.connection(), Trajectory, row.id, {**taken, "stop_reason": None, "message": ""})
    return the(session, Trajectory, row.id)


def _new(session: Session, start: Start, owner: str, now: float, **place: Any) -> Trajectory:
    problem = start.problem
    [reference_id] = save_blobs(session.connection(), [pack_text(problem.source)])
    values = {
        "key": start.key,
        "problem": problem.name,
        "problem_hash": problem.hash,
        "suite": problem.suite,
        "reference_id": reference_id,
        "created": now,
        **start.model_dump(include={"policy", "options", "goal", "budgets", "seed", "program"}),
        **held(0, "", 0.0, owner, now),
        **place,
    }
    return the(session, Trajectory, add(session.connection(), Trajectory, values))


def lock_trajectories(session: Session) -> None:
    """Two processes that look for the same one at once. SQLite's writer is alone already."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE trajectory IN SHARE ROW EXCLUSIVE MODE")


def put_best(session: Session, trajectory_id: int, best_id: int | None) -> None:
    """`best_id` None: none is correct any more."""
    best = None if best_id is None else the(session, Candidate, best_id).id
    change(session.connection(), Trajectory, the(session, Trajectory, trajectory_id).id, {"best_id": best})


def stop(
    session: Session,
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
    row = the(session, Trajectory, trajectory_id)
    values: dict[str, Any] = {"stop_reason": reason, "message": clean_text(message, 400), "finished": finished}
    if best_id is not None:
        values["best_id"] = the(session, Candidate, best_id).id
    if spent is not None:
        values["spent"] = spent
    change(session.connection(), Trajectory, row.id, {**values, "updated": now, "owner": "", "lease": 0.0})
    return the(session, Trajectory, row.id)
