"""Deletes trajectories and unreferenced texts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, Select, delete, func, select, union, update
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
    """Deletes a trajectory with its candidates, verdicts and rewards.

    Raises StoreError if a process works on the trajectory, or another trajectory was forked from
    it.
    """
    row = existing_row(connection, Trajectory, trajectory_id)
    lease_fields(row.id, row.owner, row.lease, owner, now)
    candidate_ids = select(col(Candidate.id)).where(col(Candidate.trajectory_id) == trajectory_id)
    _check_forks(connection, trajectory_id, candidate_ids)
    verdicts = select(col(Verdict.id)).where(col(Verdict.candidate_id).in_(candidate_ids))
    # Rows refer to each other in cycles (candidate <-> verdict, trajectory <-> candidate): clear
    # these references first, then delete from the leaves to the root.
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
        (Verdict, col(Verdict.candidate_id).in_(candidate_ids)),
        (Candidate, col(Candidate.trajectory_id) == trajectory_id),
        (Trajectory, col(Trajectory.id) == trajectory_id),
    ]
    for table, condition in doomed:
        connection.execute(delete(table).where(condition))


def _check_forks(connection: Connection, trajectory_id: int, candidate_ids: Select[int]) -> None:
    """Raises StoreError if another trajectory refers to one of these candidates."""
    fork_query = union(
        select(col(Trajectory.id)).where(
            col(Trajectory.forked_from_id).in_(candidate_ids), col(Trajectory.id) != trajectory_id
        ),
        select(col(Candidate.trajectory_id)).where(
            col(Candidate.parent_id).in_(candidate_ids),
            col(Candidate.trajectory_id) != trajectory_id,
        ),
    )
    if forks := connection.execute(fork_query).scalars().all():
        names = ", ".join(str(fork) for fork in forks)
        raise StoreError(
            f"trajectory {trajectory_id} was forked: delete {names} first", StoreTrouble.INVALID
        )


def references(table: type[StoredRow]) -> list[Any]:
    """Returns all columns that refer to `table`, read from the foreign keys of the schema so that
    none is forgotten.
    """
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    tables = StoredRow.metadata.tables.values()
    columns: list[Any] = []
    for referring in tables:
        columns += [key.parent for key in referring.foreign_keys if key.column.table is target]
    return columns


def sweep(connection: Connection) -> SweptCounts:
    """Deletes unreferenced links, then unreferenced blobs, then search index entries of deleted
    rows.
    """
    lost = (
        connection.execute(
            select(col(Link.id)).where(col(Link.id).not_in(_live_links())).order_by(col(Link.id))
        )
        .scalars()
        .all()
    )
    # Later links refer to earlier ones, so the latest are deleted first.
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
    """Selects the links referenced by rows and all links before them."""
    link = StoredRow.metadata.tables["link"]
    # Links also refer to links; only references from other tables keep a chain alive.
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
    """Returns free space of a SQLite file to the disk.

    Needs temporary space as large as the database.
    """
    if engine.dialect.name != "sqlite":
        return
    outside_transaction(engine, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
