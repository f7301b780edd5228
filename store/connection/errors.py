"""Explains database errors in a single line with advice.

Causes are read from error codes, never from messages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from sqlalchemy.exc import DBAPIError

from kernelwright.tools.report import InfrastructureError


class StoreTrouble(StrEnum):
    """Reasons why a database refuses an operation."""

    MISSING = "missing"
    """No such file, folder or row."""
    FOREIGN = "foreign"
    """Not a database, or the database of another program."""
    NEWER = "newer"
    """Written by a newer version of this program."""
    OLDER = "older"
    """Needs a migration but was opened for reading only."""
    READ_ONLY = "read_only"
    LOCKED = "locked"
    """Another process held the write lock longer than the waiting time."""
    FULL = "full"
    """Disk, quota or page limit reached."""
    CORRUPT = "corrupt"
    UNREACHABLE = "unreachable"
    """The server does not answer or refuses the login."""
    BUSY = "busy"
    """A live process works on the requested trajectory."""
    UNUSABLE = "unusable"
    """Invalid user input: a malformed database address, or a search without words."""
    INVALID = "invalid"
    """The new row contradicts column types or existing rows."""
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
"""Troubles caused by user input; all others are caused by this machine or by a server."""


class StoreError(InfrastructureError):
    """Database failure with a one-line message. Never caused by a candidate."""

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
"""Trouble for each primary result code (sqlite.org/rescode.html).

In practice, an I/O error while writing means a full disk or quota.
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
"""Trouble for each PostgreSQL error code or class of codes (Appendix A of the PostgreSQL manual).
"""

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
    """Returns the cause of an error, read from the driver's error code."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        # The low byte of an extended result code is the primary code.
        return _SQLITE.get(code & 0xFF, StoreTrouble.OTHER)
    state = getattr(cause, "sqlstate", None) or ""
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if not state and isinstance(error, DBAPIError) and "OperationalError" in kinds:
        return StoreTrouble.UNREACHABLE  # libpq gives no SQLSTATE if no connection was established
    # Exact code first, then its class (the first two characters).
    return _SQLSTATES.get(state) or _SQLSTATES.get(state[:2]) or StoreTrouble.OTHER


def explain(error: BaseException, database: str) -> StoreError:
    """Returns the error as a one-line message with advice."""
    trouble = trouble_of(error)
    cause = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
    return StoreError(
        f"the database {database} {_ADVICE.get(trouble, 'failed')} ({cause[0].strip()})", trouble
    )


@contextmanager
def explaining_errors(database: str) -> Iterator[None]:
    """Converts driver errors into StoreErrors about `database`.

    Other errors pass unchanged.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise explain(error, database) from error
