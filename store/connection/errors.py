"""Errors of a database as one line that says what to do. Causes are read from error codes, never from text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from sqlalchemy.exc import DBAPIError

from kernelwright.tools.report import InfrastructureError


class StoreTrouble(StrEnum):
    """The reasons why a database refuses an operation."""

    MISSING = "missing"
    """There is no such file, folder or row."""
    FOREIGN = "foreign"
    """A file that is no database, or the database of another program."""
    NEWER = "newer"
    """Written by a newer version of this program."""
    OLDER = "older"
    """Needs a migration, and was opened for reading only."""
    READ_ONLY = "read_only"
    LOCKED = "locked"
    """Another process kept the write lock for longer than we waited."""
    FULL = "full"
    """Disk, quota or page limit."""
    CORRUPT = "corrupt"
    UNREACHABLE = "unreachable"
    """A server that does not answer or does not let us in."""
    BUSY = "busy"
    """A live process works on this very trajectory."""
    UNUSABLE = "unusable"
    """The user's own words cannot be used: an address of no database, a search without a word."""
    INVALID = "invalid"
    """A row that was to be saved contradicts its columns or the rows that exist."""
    OTHER = "other"


BAD_INPUT_TROUBLES = frozenset(
    {
        StoreTrouble.MISSING,
        StoreTrouble.FOREIGN,
        StoreTrouble.NEWER,
        StoreTrouble.OLDER,
        StoreTrouble.UNUSABLE,
    }
)
"""Troubles of what the user named; the rest is trouble of this machine or of a server."""


class StoreError(InfrastructureError):
    """The database's trouble, never the candidate's. One line."""

    def __init__(self, message: str, trouble: StoreTrouble) -> None:
        super().__init__(" ".join(message.split()))
        self.trouble = trouble
        self.bad_input = trouble in BAD_INPUT_TROUBLES


_SQLITE: dict[int, StoreTrouble] = {
    sqlite3.SQLITE_BUSY: StoreTrouble.LOCKED,
    sqlite3.SQLITE_LOCKED: StoreTrouble.LOCKED,
    sqlite3.SQLITE_READONLY: StoreTrouble.READ_ONLY,
    sqlite3.SQLITE_FULL: StoreTrouble.FULL,
    sqlite3.SQLITE_CORRUPT: StoreTrouble.CORRUPT,
    sqlite3.SQLITE_NOTADB: StoreTrouble.FOREIGN,
    sqlite3.SQLITE_CANTOPEN: StoreTrouble.MISSING,
    sqlite3.SQLITE_PERM: StoreTrouble.READ_ONLY,
    sqlite3.SQLITE_CONSTRAINT: StoreTrouble.INVALID,
    sqlite3.SQLITE_IOERR: StoreTrouble.FULL,
}
"""Primary result codes (sqlite.org/rescode.html).

An I/O error while writing is, in practice, a disk or quota that is full.
"""

_SQLSTATES: dict[str, StoreTrouble] = {
    "53100": StoreTrouble.FULL,
    "55P03": StoreTrouble.LOCKED,
    "40P01": StoreTrouble.LOCKED,
    "25006": StoreTrouble.READ_ONLY,
    "42501": StoreTrouble.READ_ONLY,
    "3D000": StoreTrouble.MISSING,
    "23": StoreTrouble.INVALID,
    "08": StoreTrouble.UNREACHABLE,
    "28": StoreTrouble.UNREACHABLE,
    "57": StoreTrouble.UNREACHABLE,
    "XX": StoreTrouble.CORRUPT,
}
"""PostgreSQL's codes, or their class (Appendix A of its manual)."""

_ADVICE: dict[StoreTrouble, str] = {
    StoreTrouble.MISSING: "cannot be opened: check that the folder exists and may be read, or name another with --db",
    StoreTrouble.FOREIGN: "is not a kernelwright database: name another file with --db",
    StoreTrouble.READ_ONLY: "may not be written: change its permissions, or name another with --db",
    StoreTrouble.LOCKED: "is locked by another process: wait for it or stop it, then run the same command again",
    StoreTrouble.FULL: "cannot grow, the disk or its quota is full: free some space, then run the same command "
    "again (what was finished is "
    "kept)",
    StoreTrouble.CORRUPT: "is damaged: keep a copy, then save what can be read with `sqlite3 FILE .recover`",
    StoreTrouble.UNREACHABLE: "does not answer or refuses the login: check that the server runs, and the URL's "
    "user, password, host, port and name of the database",
    StoreTrouble.INVALID: "refused a row that contradicts those it has",
}


def trouble_of(error: BaseException) -> StoreTrouble:
    """Returns the cause, by the driver's own error code."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SQLITE.get(code & 0xFF, StoreTrouble.OTHER)
    state = getattr(cause, "sqlstate", None) or ""
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if not state and isinstance(error, DBAPIError) and "OperationalError" in kinds:
        return StoreTrouble.UNREACHABLE  # libpq gives no code where there was no connection
    return _SQLSTATES.get(state) or _SQLSTATES.get(state[:2]) or StoreTrouble.OTHER


def explain(error: BaseException, where: str) -> StoreError:
    """Returns the error as one line that says what to do."""
    trouble = trouble_of(error)
    cause = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
    return StoreError(
        f"the database {where} {_ADVICE.get(trouble, 'failed')} ({cause[0].strip()})", trouble
    )


@contextmanager
def explaining_errors(where: str) -> Iterator[None]:
    """Turns a driver's error into a StoreError about the database at `where`. Other errors are not ours to explain."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise explain(error, where) from error
