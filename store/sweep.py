"""Deletes a trajectory, then the texts that no row refers to any more."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, delete, func, select, union, update
from sqlalchemy.engine import Connection
from sqlmodel import col

from kernelwright.store.beginning import lease_fields
from kernelwright.store.blobs import split_into_batches
from kernelwright.store.connection.engine import outside_transaction
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.models import Blob, Candidate, Link, Reward, StoredRow, Trajectory, Verdict
from kernelwright.store.records import SweptCounts
from kernelwright.store.rows import existing_row
from kernelwright.store.search import sweep_index


def forget(connection: Connection, trajectory_id: int, owner: str, now: float) -> None:
    """Deletes a trajectory with its candidates, verdicts and rewards. Raises StoreError where a process works on it, or
    another trajectory was forked from it.
    """
    row = existing_row(connection, Trajectory, trajectory_id)
    lease_fields(row.id, row.owner, row.lease, owner, now)
    own = select(col(Candidate.id)).where(col(Candidate.trajectory_id) == trajectory_id)
    _check_forks(connection, trajectory_id, own)
    verdicts = select(col(Verdict.id)).where(col(Verdict.candidate_id).in_(own))
    connection.execute(
        update(Candidate)
        .where(col(Candidate.trajectory_id) == trajectory_id)
        .values(verdict_id=None)
    )
    connection.execute(
        update(Trajectory).where(col(Trajectory.id) == trajectory_id).values(best_id=None)
    )
    doomed: list[tuple[Any, Any]] = [
        (Reward, col(Reward.verdict_id).in_(verdicts)),
        (Verdict, col(Verdict.candidate_id).in_(own)),
        (Candidate, col(Candidate.trajectory_id) == trajectory_id),
        (Trajectory, col(Trajectory.id) == trajectory_id),
    ]
    for table, condition in doomed:
        connection.execute(delete(table).where(condition))


def _check_forks(connection: Connection, trajectory_id: int, own: Any) -> None:
    others = union(
        select(col(Trajectory.id)).where(
            col(Trajectory.forked_from_id).in_(own), col(Trajectory.id) != trajectory_id
        ),
        select(col(Candidate.trajectory_id)).where(
            col(Candidate.parent_id).in_(own), col(Candidate.trajectory_id) != trajectory_id
        ),
    )
    if forks := connection.execute(others).scalars().all():
        names = ", ".join(str(fork) for fork in forks)
        raise StoreError(
            f"trajectory {trajectory_id} was forked: delete {names} first", StoreTrouble.INVALID
        )


def references(table: type[StoredRow]) -> list[Any]:
    """Every column of the schema that names a row of `table`, read off the foreign keys so that none is forgotten."""
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    tables = StoredRow.metadata.tables.values()
    return [
        key.parent for other in tables for key in other.foreign_keys if key.column.table is target
    ]


def sweep(connection: Connection) -> SweptCounts:
    """Deletes links that no row leads to, then blobs that no row names, then what the search index says of rows
    that are gone.
    """
    lost = (
        connection.execute(
            select(col(Link.id)).where(col(Link.id).not_in(_live_links())).order_by(col(Link.id))
        )
        .scalars()
        .all()
    )
    for part in split_into_batches(reversed(lost)):
        connection.execute(delete(Link).where(col(Link.id).in_(part)))
    named = union(*(select(column).where(column.is_not(None)) for column in references(Blob)))
    dead = col(Blob.id).not_in(named)
    bytes = connection.execute(
        select(func.coalesce(func.sum(func.length(col(Blob.body))), 0)).where(dead)
    ).scalar_one()
    blobs = connection.execute(delete(Blob).where(dead)).rowcount
    sweep_index(connection)
    return SweptCounts(links=len(lost), blobs=blobs, bytes=int(bytes))


def _live_links() -> Any:
    """The heads that rows name, and all before them."""
    link = StoredRow.metadata.tables["link"]
    heads = [column for column in references(Link) if column.table is not link]
    named = union(
        *(select(column.label("id")).where(column.is_not(None)) for column in heads)
    ).subquery()
    live = select(named.c.id).cte("live", recursive=True)
    before = (
        select(link.c.before_id)
        .join(live, link.c.id == live.c.id)
        .where(link.c.before_id.is_not(None))
    )
    return select(live.union(before).c.id)


def shrink(engine: Engine) -> None:
    """Gives the room back to the disk. Needs as much free room as the database holds, for a moment."""
    if engine.dialect.name != "sqlite":
        return
    outside_transaction(engine, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
