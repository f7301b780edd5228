"""Reads trajectories, candidates and verdicts by filters, and counts what the database holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, or_, select
from sqlmodel import Session, col

from kernelwright.store.blobs import load_blobs, unpack_text
from kernelwright.store.connection.engine import Engines
from kernelwright.store.migrations import CURRENT_VERSION
from kernelwright.store.models import BatchRun, Blob, Candidate, Reward, State, Trajectory, Verdict
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
"""Ids that a search looks through at first."""

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


def trajectory_conditions(wanted: TrajectoryFilter) -> list[ColumnElement[bool]]:
    """Returns the conditions on trajectories, without those on times, which are of the row that is listed."""
    table: Any = Trajectory
    conditions = _equal(table, wanted, _OF_TRAJECTORY)
    if wanted.run is not None:
        named = select(col(BatchRun.id)).where(col(BatchRun.name) == wanted.run)
        conditions.append(table.run_id.in_(named))
    if wanted.finished is not None:
        conditions.append(
            table.finished.is_not(None) if wanted.finished else table.finished.is_(None)
        )
    return conditions


def candidate_conditions(wanted: CandidateFilter) -> list[ColumnElement[bool]]:
    """A field of the verdict can only hold where there is one."""
    conditions = (
        trajectory_conditions(wanted)
        + _equal(Candidate, wanted, _OF_CANDIDATE)
        + _equal(Verdict, wanted, _OF_VERDICT)
    )
    if wanted.min_speedup is not None:
        conditions.append(col(Verdict.speedup) >= wanted.min_speedup)
    return conditions + _within(Candidate, wanted)


def _equal(table: Any, wanted: TrajectoryFilter, names: Sequence[str]) -> list[ColumnElement[bool]]:
    return [
        getattr(table, name) == value
        for name in names
        if (value := getattr(wanted, name)) is not None
    ]


def _within(table: Any, wanted: TrajectoryFilter) -> list[ColumnElement[bool]]:
    conditions = [] if wanted.since is None else [table.created >= wanted.since]
    return conditions if wanted.until is None else [*conditions, table.created < wanted.until]


def trajectories(
    session: Session,
    wanted: TrajectoryFilter,
    *,
    before: int | None,
    limit: int | None,
    newest: bool = True,
) -> list[Trajectory]:
    """A CandidateFilter wants those with at least one such candidate."""
    table: Any = Trajectory
    statement = select(Trajectory).where(*trajectory_conditions(wanted))
    if isinstance(wanted, CandidateFilter):
        fitting = _listed(wanted).with_only_columns(
            col(Candidate.trajectory_id), maintain_column_froms=True
        )
        statement = statement.where(table.id.in_(fitting))
    else:
        statement = statement.where(*_within(table, wanted))
    if before is not None:
        statement = statement.where(table.id < before if newest else table.id > before)
    statement = statement.order_by(table.id.desc() if newest else table.id).limit(limit)
    return list(session.execute(statement).scalars())


def has_turns(session: Session, trajectory_id: int) -> bool:
    """Says whether a trajectory has a turn of its own."""
    return (
        session.connection().execute(_ANY_TURN, {"trajectory_id": trajectory_id}).first()
        is not None
    )


def entries(
    session: Session,
    wanted: CandidateFilter,
    *,
    order: Order,
    before: int | None,
    limit: int | None,
) -> list[Entry]:
    """Returns a page of candidates with their verdicts, in the order that was asked for."""
    return _entries(session, _listed(wanted, order), order=order, before=before, limit=limit)


def _listed(
    wanted: CandidateFilter, order: Order = Order.NEWEST
) -> Select[Candidate, Trajectory, Verdict]:
    """Candidates with their trajectory and the verdict in force; where it must be there, the database may start
    from it.
    """
    joined = select(Candidate, Trajectory, Verdict).join(
        Trajectory, col(Candidate.trajectory_id) == col(Trajectory.id)
    )
    names = (*_OF_VERDICT, "min_speedup")
    judged = order is Order.FASTEST or any(getattr(wanted, name) is not None for name in names)
    in_force = col(Candidate.verdict_id) == col(Verdict.id)
    return joined.join(Verdict, in_force, isouter=not judged).where(*candidate_conditions(wanted))


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
            fastest = (col(Verdict.speedup).desc(), col(Verdict.id).desc())
            timed = statement.where(col(Verdict.speedup).is_not(None))
            narrow = (
                timed.with_only_columns(col(Candidate.id), maintain_column_froms=True)
                .order_by(*fastest)
                .limit(limit)
            )
            statement = timed.where(col(Candidate.id).in_(narrow.subquery().select())).order_by(
                *fastest
            )
    return [Entry(*row) for row in session.execute(statement.limit(limit))]


def count(session: Session, wanted: CandidateFilter) -> int:
    """Counts the candidates that a filter wants."""
    return session.execute(
        _listed(wanted).with_only_columns(func.count(), maintain_column_froms=True)
    ).scalar_one()


def formulas(session: Session, wanted: CandidateFilter) -> list[str]:
    """Names of the formulas that have scored any verdict of these candidates, those no longer in force too."""
    chosen = (
        _listed(wanted)
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
    session: Session, query: str, wanted: CandidateFilter, *, before: int | None, limit: int
) -> list[SearchHit]:
    """Newest first. A candidate is found by its problem, answer and code, and by the failure of the verdict in force.

    Looks through the newest ids first and then through ever larger ranges of older ones: a word that all have costs no
    more than a rare one.
    """
    terms = terms_of(query)
    newest = select(func.coalesce(func.max(col(Candidate.id)), 0))
    upper = before if before is not None else session.execute(newest).scalar_one() + 1
    found: list[Entry] = []
    width = FIRST_SEARCHED_IDS
    while upper > 1 and len(found) < limit:
        lower = max(1, upper - width)
        statement = _listed(wanted).where(_found_between(session, terms, lower, upper - 1))
        found += _entries(
            session, statement, order=Order.NEWEST, before=None, limit=limit - len(found)
        )
        upper, width = lower, width * 4
    return [
        SearchHit(entry, text)
        for entry, text in zip(found, _excerpts(session, found, terms), strict=True)
    ]


def _found_between(
    session: Session, terms: Sequence[SearchTerm], first: int, last: int
) -> ColumnElement[bool]:
    """Candidates with these ids that hold the terms, or whose verdict does."""
    dialect = session.connection().dialect.name
    inside = col(Candidate.id).between(first, last)
    in_force = col(Candidate.verdict_id)
    low, high = session.execute(select(func.min(in_force), func.max(in_force)).where(inside)).one()
    said = col(Candidate.id).in_(matching(dialect, CANDIDATE, terms, (first, last)))
    failed = in_force.in_(matching(dialect, VERDICT, terms, (low or 0, high or 0)))
    return and_(inside, or_(said, failed))


def _excerpts(session: Session, found: Sequence[Entry], terms: Sequence[SearchTerm]) -> list[str]:
    bodies = load_blobs(session.connection(), (entry.candidate.reply_id for entry in found))
    texts = [unpack_text(bodies.get(entry.candidate.reply_id or 0, b"")) for entry in found]
    messages = [entry.verdict.message if entry.verdict else "" for entry in found]
    return [
        excerpt(f"{text}\n{message}", terms) for text, message in zip(texts, messages, strict=True)
    ]


def report(session: Session, verdict_id: int) -> Report:
    """Loads the whole report of a verdict. Raises StoreError where there is no such verdict."""
    connection = session.connection()
    verdict = existing_row(connection, Verdict, verdict_id)
    return load_report(load_blobs(connection, [verdict.report_id])[verdict.report_id])


def count_everything(session: Session, engines: Engines) -> Stats:
    """Counts the rows of every table, and the bytes that they take."""
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
        where=engines.where,
        bytes=None if engines.path is None else _file_size(engines.path),
        runs=_count(session, BatchRun),
        trajectories=_count(session, Trajectory),
        unfinished=unfinished.scalar_one(),
        candidates={State(state): number for state, number in session.execute(states)},
        verdicts=_count(session, Verdict),
        correct=session.execute(correct.where(col(Verdict.correct))).scalar_one(),
        rewards=_count(session, Reward),
        blobs=_count(session, Blob),
        blob_bytes=int(blob_bytes or 0),
        stored_bytes=int(stored_bytes or 0),
    )


def _count(session: Session, table: Any) -> int:
    return session.execute(select(func.count()).select_from(table)).scalar_one()


def _file_size(path: Path) -> int:
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
