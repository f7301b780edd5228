"""Reads trajectories, candidates and verdicts by filters, and counts rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, or_, select
from sqlmodel import Session, col

from kernelwright.store.blobs import load_blobs, unpack_text
from kernelwright.store.connection.column_types import StoredRow
from kernelwright.store.connection.engine import Engines
from kernelwright.store.migrations import CURRENT_VERSION
from kernelwright.store.models import (
    BatchRun,
    Blob,
    Candidate,
    CandidateState,
    Reward,
    Trajectory,
    Verdict,
)
from kernelwright.store.records import (
    CandidateFilter,
    Entry,
    Order,
    SearchHit,
    Stats,
    TrajectoryFilter,
    load_report,
)
from kernelwright.store.rows import existing_row
from kernelwright.store.search import CANDIDATE, VERDICT, SearchTerm, excerpt, matching, terms_of
from kernelwright.tools.report import Report

FIRST_SEARCHED_IDS = 2000
"""Number of ids in the first range of a search; later ranges grow by a factor of four."""

_ANY_TURN = (
    select(col(Candidate.id))
    .where(col(Candidate.trajectory_id) == bindparam("trajectory_id"))
    .limit(1)
)
_OF_TRAJECTORY = ("key", "problem", "problem_hash", "suite", "policy", "stop_reason")
_OF_CANDIDATE = (
    "trajectory_id", "parent_id", "action", "state", "exact", "policy_revision", "adapter_revision", "source_hash",
)  # fmt: skip
_OF_VERDICT = ("correct", "rung", "fault", "cheat", "judged_on", "fingerprint")


def trajectory_conditions(criteria: TrajectoryFilter) -> list[ColumnElement[bool]]:
    """Returns SQL conditions for the trajectory fields of a filter.

    Times are excluded: `since` and `until` apply to the listed table.
    """
    table: Any = Trajectory
    conditions = _equal(table, criteria, _OF_TRAJECTORY)
    if criteria.run is not None:
        named = select(col(BatchRun.id)).where(col(BatchRun.name) == criteria.run)
        conditions.append(table.run_id.in_(named))
    if criteria.finished is not None:
        conditions.append(
            table.finished.is_not(None) if criteria.finished else table.finished.is_(None)
        )
    return conditions


def candidate_conditions(criteria: CandidateFilter) -> list[ColumnElement[bool]]:
    """Returns SQL conditions for all fields of a candidate filter.

    Conditions on verdict fields never match unjudged candidates.
    """
    conditions = (
        trajectory_conditions(criteria)
        + _equal(Candidate, criteria, _OF_CANDIDATE)
        + _equal(Verdict, criteria, _OF_VERDICT)
    )
    if criteria.min_speedup is not None:
        conditions.append(col(Verdict.speedup) >= criteria.min_speedup)
    return conditions + _within(Candidate, criteria)


def _equal(
    table: type[StoredRow], criteria: TrajectoryFilter, names: Sequence[str]
) -> list[ColumnElement[bool]]:
    """Returns `column == value` for every named field that has a value."""
    conditions: list[ColumnElement[bool]] = []
    for name in names:
        value = getattr(criteria, name)
        if value is not None:
            conditions.append(getattr(table, name) == value)
    return conditions


def _within(
    table: type[Trajectory] | type[Candidate], criteria: TrajectoryFilter
) -> list[ColumnElement[bool]]:
    """Returns the conditions on the creation time of a row."""
    conditions: list[ColumnElement[bool]] = []
    if criteria.since is not None:
        conditions.append(col(table.created) >= criteria.since)
    if criteria.until is not None:
        conditions.append(col(table.created) < criteria.until)
    return conditions


def trajectories(
    session: Session,
    criteria: TrajectoryFilter,
    *,
    before: int | None,
    limit: int | None,
    newest: bool = True,
) -> list[Trajectory]:
    """Lists trajectories; a CandidateFilter selects trajectories with at least one matching
    candidate.
    """
    table: Any = Trajectory
    statement = select(Trajectory).where(*trajectory_conditions(criteria))
    if isinstance(criteria, CandidateFilter):
        fitting = _listed(criteria).with_only_columns(
            col(Candidate.trajectory_id), maintain_column_froms=True
        )
        statement = statement.where(table.id.in_(fitting))
    else:
        statement = statement.where(*_within(table, criteria))
    if before is not None:
        statement = statement.where(table.id < before if newest else table.id > before)
    statement = statement.order_by(table.id.desc() if newest else table.id).limit(limit)
    return list(session.execute(statement).scalars())


def has_turns(session: Session, trajectory_id: int) -> bool:
    """Returns whether a trajectory has any turn."""
    return (
        session.connection().execute(_ANY_TURN, {"trajectory_id": trajectory_id}).first()
        is not None
    )


def entries(
    session: Session,
    criteria: CandidateFilter,
    *,
    order: Order,
    before: int | None,
    limit: int | None,
) -> list[Entry]:
    """Returns a page of candidates with their verdicts."""
    return _entries(session, _listed(criteria, order), order=order, before=before, limit=limit)


def _listed(
    criteria: CandidateFilter, order: Order = Order.NEWEST
) -> Select[Candidate, Trajectory, Verdict]:
    """Selects candidates with their trajectory and verdict in force.

    An inner join is used if a verdict is required, so that the database may start from the
    verdict table.
    """
    joined = select(Candidate, Trajectory, Verdict).join(
        Trajectory, col(Candidate.trajectory_id) == col(Trajectory.id)
    )
    names = (*_OF_VERDICT, "min_speedup")
    judged = order is Order.FASTEST or any(getattr(criteria, name) is not None for name in names)
    in_force = col(Candidate.verdict_id) == col(Verdict.id)
    return joined.join(Verdict, in_force, isouter=not judged).where(*candidate_conditions(criteria))


def _entries(
    session: Session,
    statement: Select[Candidate, Trajectory, Verdict],
    *,
    order: Order,
    before: int | None,
    limit: int | None,
) -> list[Entry]:
    if before is not None:
        statement = statement.where(
            col(Candidate.id) > before if order is Order.OLDEST else col(Candidate.id) < before
        )
    match order:
        case Order.NEWEST:
            statement = statement.order_by(col(Candidate.id).desc())
        case Order.OLDEST:
            statement = statement.order_by(col(Candidate.id))
        case Order.FASTEST:
            # The ids of the page are found first, on narrow rows, and only then the wide rows
            # are read and sorted.
            fastest = (col(Verdict.speedup).desc(), col(Verdict.id).desc())
            timed = statement.where(col(Verdict.speedup).is_not(None))
            page = (
                timed.with_only_columns(col(Candidate.id), maintain_column_froms=True)
                .order_by(*fastest)
                .limit(limit)
            )
            in_page = col(Candidate.id).in_(page.subquery().select())
            statement = timed.where(in_page).order_by(*fastest)
    return [Entry(*row) for row in session.execute(statement.limit(limit))]


def count(session: Session, criteria: CandidateFilter) -> int:
    """Counts the candidates selected by a filter."""
    return session.execute(
        _listed(criteria).with_only_columns(func.count(), maintain_column_froms=True)
    ).scalar_one()


def formulas(session: Session, criteria: CandidateFilter) -> list[str]:
    """Returns the names of all reward formulas that scored verdicts of these candidates,
    superseded verdicts included.
    """
    chosen = (
        _listed(criteria)
        .with_only_columns(col(Candidate.id), maintain_column_froms=True)
        .subquery()
        .select()
    )
    scored = (
        select(col(Reward.formula))
        .join(Verdict, col(Reward.verdict_id) == col(Verdict.id))
        .distinct()
    )
    return list(
        session.execute(
            scored.where(col(Verdict.candidate_id).in_(chosen)).order_by(col(Reward.formula))
        ).scalars()
    )


def search(
    session: Session, query: str, criteria: CandidateFilter, *, before: int | None, limit: int
) -> list[SearchHit]:
    """Searches candidates by problem, answer, code and the failure message of the verdict in
    force; newest first.

    Ranges of ids are searched from the newest to the oldest, each four times larger, until the
    page is full. Frequent words therefore cost no more than rare words. Example with 10,000
    candidates: ids 8001 to 10000, then 1 to 8000.
    """
    terms = terms_of(query)
    newest = select(func.coalesce(func.max(col(Candidate.id)), 0))
    upper = before if before is not None else session.execute(newest).scalar_one() + 1
    hits: list[Entry] = []
    width = FIRST_SEARCHED_IDS
    while upper > 1 and len(hits) < limit:
        lower = max(1, upper - width)
        statement = _listed(criteria).where(_matches_between(session, terms, lower, upper - 1))
        hits += _entries(
            session, statement, order=Order.NEWEST, before=None, limit=limit - len(hits)
        )
        upper, width = lower, width * 4
    return [
        SearchHit(entry, text)
        for entry, text in zip(hits, _excerpts(session, hits, terms), strict=True)
    ]


def _matches_between(
    session: Session, terms: Sequence[SearchTerm], first: int, last: int
) -> ColumnElement[bool]:
    """Returns the condition for candidates with ids in a range whose text or verdict matches all
    terms.
    """
    dialect = session.connection().dialect.name
    inside = col(Candidate.id).between(first, last)
    # The index has texts of all verdicts: their range of ids limits the full-text query.
    in_force = col(Candidate.verdict_id)
    low, high = session.execute(select(func.min(in_force), func.max(in_force)).where(inside)).one()
    text_matches = col(Candidate.id).in_(matching(dialect, CANDIDATE, terms, (first, last)))
    failure_matches = in_force.in_(matching(dialect, VERDICT, terms, (low or 0, high or 0)))
    return and_(inside, or_(text_matches, failure_matches))


def _excerpts(session: Session, hits: Sequence[Entry], terms: Sequence[SearchTerm]) -> list[str]:
    """Returns a matching line from the reply or failure message of each hit."""
    bodies = load_blobs(session.connection(), (entry.candidate.reply_id for entry in hits))
    excerpts: list[str] = []
    for entry in hits:
        reply = unpack_text(bodies.get(entry.candidate.reply_id or 0, b""))
        message = entry.verdict.message if entry.verdict else ""
        excerpts.append(excerpt(f"{reply}\n{message}", terms))
    return excerpts


def report(session: Session, verdict_id: int) -> Report:
    """Loads the full report of a verdict. Raises StoreError if there is no such verdict."""
    connection = session.connection()
    verdict = existing_row(connection, Verdict, verdict_id)
    return load_report(load_blobs(connection, [verdict.report_id])[verdict.report_id])


def count_everything(session: Session, engines: Engines) -> Stats:
    """Counts the rows of every table and the stored bytes."""
    unfinished = session.execute(
        select(func.count()).select_from(Trajectory).where(col(Trajectory.finished).is_(None))
    )
    states = select(col(Candidate.state), func.count()).group_by(col(Candidate.state))
    correct = (
        select(func.count())
        .select_from(Candidate)
        .join(Verdict, col(Candidate.verdict_id) == col(Verdict.id))
    )
    sizes = select(func.sum(col(Blob.size)), func.sum(func.length(col(Blob.body))))
    blob_bytes, stored_bytes = session.execute(sizes).one()
    return Stats(
        version=CURRENT_VERSION,
        where=engines.display_name,
        bytes=None if engines.path is None else _file_size(engines.path),
        runs=_count(session, BatchRun),
        trajectories=_count(session, Trajectory),
        unfinished=unfinished.scalar_one(),
        candidates={CandidateState(state): number for state, number in session.execute(states)},
        verdicts=_count(session, Verdict),
        correct=session.execute(correct.where(col(Verdict.correct))).scalar_one(),
        rewards=_count(session, Reward),
        blobs=_count(session, Blob),
        blob_bytes=int(blob_bytes or 0),
        stored_bytes=int(stored_bytes or 0),
    )


def _count(session: Session, table: type[StoredRow]) -> int:
    return session.execute(select(func.count()).select_from(table)).scalar_one()


def _file_size(path: Path) -> int:
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
