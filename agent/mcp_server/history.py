"""Verdicts of this and earlier servers, in an SQLite file. Several servers may share the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from kernelwright.agent.mcp_server.answers import AnswerState, HistoryLine, Question, VerdictOutcome
from kernelwright.agent.mcp_server.budget import CLIENT
from kernelwright.store.connection.versioned_file import Tables, open_versioned_file
from kernelwright.tools.report import InfrastructureError, Value

HISTORY_VERDICTS = sa.Table(
    "verdicts",
    sa.MetaData(),
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("created", sa.String, nullable=False),
    sa.Column("question", sa.String, nullable=False),
    sa.Column("problem", sa.String, nullable=False),
    sa.Column("problem_hash", sa.String, nullable=False),
    sa.Column("candidate_hash", sa.String, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("outcome", sa.String),
    sa.Column("explanation", sa.String, nullable=False, server_default=""),
    sa.Column("speedup", sa.Float),
    sa.Column("answer", sa.String, nullable=False, server_default=""),
    sa.Column("report", sa.String, nullable=False, server_default=""),
    sa.Column("server", sa.Integer, nullable=False),
    sa.Column("client", sa.String, nullable=False, server_default=""),
    sa.Index("verdicts_by_problem", "problem", "created"),
)
HISTORY_TABLES = Tables(
    HISTORY_VERDICTS.metadata,
    version=2,
    upgrades={1: ("ALTER TABLE verdicts ADD COLUMN client TEXT NOT NULL DEFAULT ''",)},
)
LINE_COLUMNS = [
    HISTORY_VERDICTS.c.id.label("verdict_id"),
    *(HISTORY_VERDICTS.c[name] for name in HistoryLine.model_fields if name != "verdict_id"),
]


class StoredVerdict(Value):
    """Row of the history: a verdict with its request, state and answer."""

    id: str
    created: str
    question: Question
    problem: str
    problem_hash: str
    candidate_hash: str
    source: str
    state: AnswerState
    outcome: VerdictOutcome | None = None
    explanation: str = ""
    speedup: float | None = None
    answer: str = ""
    """The finished `VerdictAnswer` as JSON, without budget."""
    report: str = ""
    server: int
    """Process id of the judging server."""
    client: str = ""
    """Client behind the request; empty for clients without names."""

    @property
    def lost(self) -> bool:
        """Whether a verdict stored as running was lost with its server."""
        return self.state is AnswerState.RUNNING and not _alive(self.server)


class History:
    """File of stored verdicts, shared by threads and servers."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises InputError for another kind of file, or a folder
        without write permission.
        """
        self.path = path
        self._engine = open_versioned_file(path, HISTORY_TABLES, "--db")

    @contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            raise InfrastructureError(
                f"the history {self.path} cannot be used ({error.orig}): check the disk"
            ) from error

    def begin(self, row: StoredVerdict) -> None:
        """Stores a verdict before its start."""
        with self._open() as connection:
            connection.execute(sa.insert(HISTORY_VERDICTS), row.model_dump(mode="json"))

    def keep(self, row: StoredVerdict) -> None:
        """Replaces the stored state of a verdict."""
        replace = sa.insert(HISTORY_VERDICTS).prefix_with("OR REPLACE")
        with self._open() as connection:
            connection.execute(replace, row.model_dump(mode="json"))

    def find(self, verdict_id: str) -> StoredVerdict | None:
        """Returns a verdict of the current client by its id or a unique prefix of at least 4
        characters; None if unknown.
        """
        # LIKE would read % and _ of a client's text as wildcards.
        begins = sa.func.substr(HISTORY_VERDICTS.c.id, 1, len(verdict_id)) == verdict_id
        query = (
            sa.select(HISTORY_VERDICTS)
            .where(begins, _is_own())
            .order_by(HISTORY_VERDICTS.c.id)
            .limit(2)
        )
        with self._open() as connection:
            rows = connection.execute(query).mappings().all()
        exact = [row for row in rows if row["id"] == verdict_id]
        # Two rows were read, so an ambiguous prefix is noticed.
        chosen = exact or (rows if len(rows) == 1 and len(verdict_id) >= 4 else [])
        return StoredVerdict.model_validate(dict(chosen[0])) if chosen else None

    def newest(self, problem: str, limit: int) -> tuple[list[HistoryLine], int]:
        """Returns the current client's newest verdicts of a problem (empty: of all problems), and
        their total number.
        """
        conditions = [_is_own(), *([HISTORY_VERDICTS.c.problem == problem] if problem else [])]
        query = sa.select(*LINE_COLUMNS, HISTORY_VERDICTS.c.server).where(*conditions).limit(limit)
        newest_first = HISTORY_VERDICTS.c.created.desc(), sa.text("rowid DESC")
        count = sa.select(sa.func.count()).select_from(HISTORY_VERDICTS).where(*conditions)
        with self._open() as connection:
            rows = connection.execute(query.order_by(*newest_first)).mappings().all()
            total = connection.execute(count).scalar_one()
        return [_line(row) for row in rows], total


def _is_own() -> sa.ColumnElement[bool]:
    """Returns the SQL condition for verdicts of the current client."""
    return HISTORY_VERDICTS.c.client == CLIENT.get()


def _line(row: sa.RowMapping) -> HistoryLine:
    line = HistoryLine.model_validate({name: row[name] for name in HistoryLine.model_fields})
    if line.state is AnswerState.RUNNING and not _alive(row["server"]):
        return line.with_(
            state=AnswerState.FAILED, explanation="the server ended before this verdict was made"
        )
    return line


def utc_timestamp() -> str:
    """Returns the time in UTC by ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
