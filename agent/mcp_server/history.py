"""Verdicts of this and earlier servers, in one SQLite file. Several servers may share it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.agent.mcp_server.answers import AnswerState, HistoryLine, Question, VerdictOutcome
from kernelwright.agent.mcp_server.budget import CLIENT
from kernelwright.errors import InputError
from kernelwright.tools.report import InfrastructureError, Value

SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    id TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    question TEXT NOT NULL,
    problem TEXT NOT NULL,
    problem_hash TEXT NOT NULL,
    candidate_hash TEXT NOT NULL,
    source TEXT NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT,
    explanation TEXT NOT NULL DEFAULT '',
    speedup REAL,
    answer TEXT NOT NULL DEFAULT '',
    report TEXT NOT NULL DEFAULT '',
    server INTEGER NOT NULL,
    client TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS verdicts_by_problem ON verdicts (problem, created);
"""
BUSY_SECONDS = 30.0
SCHEMA_VERSION = 2
UPGRADES = {1: "ALTER TABLE verdicts ADD COLUMN client TEXT NOT NULL DEFAULT ''"}
"""The statement that makes of each earlier version the next one."""


class StoredVerdict(Value):
    """One stored verdict."""

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
    """The process that judges or judged it."""
    client: str = ""
    """The client that asked for it; empty where clients have no names."""

    @property
    def lost(self) -> bool:
        """Whether it runs no longer because the server that judged it has ended."""
        return self.state is AnswerState.RUNNING and not _alive(self.server)


class History:
    """The file of stored verdicts. A connection is opened for each query, so that threads and servers share it."""

    def __init__(self, path: Path) -> None:
        """Raises InputError where the file is not a database of this kind, or its folder cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version > SCHEMA_VERSION:
                    raise InputError(
                        f"--db {path} was written by a newer version: update kernelwright"
                    )
                db.execute("PRAGMA journal_mode = WAL")
                for old in range(version or SCHEMA_VERSION, SCHEMA_VERSION):
                    db.execute(UPGRADES[old])
                db.executescript(SCHEMA)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"--db {path} cannot be used ({error}): name a file in a folder that you may write"
            ) from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as db, db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.Error as error:
            raise InfrastructureError(
                f"the history {self.path} cannot be used ({error}): check the disk"
            ) from error

    def begin(self, row: StoredVerdict) -> None:
        """Keeps a verdict before it is made."""
        self._write(row, "INSERT INTO")

    def keep(self, row: StoredVerdict) -> None:
        """Replaces the stored state of a verdict."""
        self._write(row, "REPLACE INTO")

    def _write(self, row: StoredVerdict, verb: str) -> None:
        values = row.model_dump(mode="json")
        names = ", ".join(values)
        with self._open() as db:
            db.execute(
                f"{verb} verdicts ({names}) VALUES ({', '.join(f':{n}' for n in values)})", values
            )

    def find(self, verdict_id: str) -> StoredVerdict | None:
        """Returns a verdict of the current client by its id, or by a beginning that no other id has."""
        with self._open() as db:
            rows = db.execute(
                "SELECT * FROM verdicts WHERE substr(id, 1, length(:id)) = :id AND client = :client "
                "ORDER BY id LIMIT 2",
                {"id": verdict_id, "client": CLIENT.get()},
            ).fetchall()
        exact = [row for row in rows if row["id"] == verdict_id]
        chosen = exact or (rows if len(rows) == 1 and len(verdict_id) >= 4 else [])
        return StoredVerdict(**dict(chosen[0])) if chosen else None

    def newest(self, problem: str, limit: int) -> tuple[list[HistoryLine], int]:
        """Returns the current client's newest verdicts of a problem (empty: of all), and how many there are."""
        where = "WHERE client = :client" + (" AND problem = :problem" if problem else "")
        with self._open() as db:
            rows = db.execute(
                f"SELECT id AS verdict_id, created, question, problem, state, outcome, explanation, candidate_hash, "
                f"speedup, server FROM verdicts {where} ORDER BY created DESC, rowid DESC LIMIT :limit",
                {"problem": problem, "limit": limit, "client": CLIENT.get()},
            ).fetchall()
            total = db.execute(
                f"SELECT count(*) FROM verdicts {where}",
                {"problem": problem, "client": CLIENT.get()},
            ).fetchone()[0]
        return [_line(row) for row in rows], total


def _line(row: sqlite3.Row) -> HistoryLine:
    line = HistoryLine(**dict(row))
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
