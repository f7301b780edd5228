"""SQLAlchemy engines for SQLite files (server.py: for servers), and the check for network file systems.

SQLite runs in WAL mode with foreign keys and a busy timeout. The single writer begins with BEGIN IMMEDIATE, and readers
set `query_only`. Every commit survives kill -9. Transactions that finish a turn run with `synchronous=FULL`, so that
they and all earlier commits also survive a power cut; other transactions run with NORMAL, whose last commits may be
lost then. WAL does not work on network file systems, because its index is shared memory (sqlite.org/wal.html,
"Overview").
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from kernelwright.store.connection.errors import StoreError, StoreTrouble

DURABLE_OPTION = "durable"
"""Key in `connection.info`: whether the next transaction must survive a power cut."""
_LEVEL = "synchronous"
"""Key in `connection.info`: latest value of PRAGMA synchronous."""

ANALYSED_ROWS = 400
"""Rows of each index examined by ANALYZE: takes milliseconds, and is enough to choose between
query plans (sqlite.org/lang_analyze.html).
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engines:
    """SQLAlchemy engines of a database: a single writing connection and many reading connections."""

    display_name: str
    """Path of the file, or URL without its password."""
    address: str
    """Path of the file, or URL with its password; opens the database again."""
    path: Path | None
    """Path of the file; None for a server."""
    writer: Engine | None
    """Engine for writing; None if the database was opened for reading only."""
    reader: Engine

    def dispose(self) -> None:
        """Closes all connections, readers first, so that the writer is the last connection and
        SQLite empties the WAL.
        """
        self.reader.dispose()
        if self.writer is not None:
            self.writer.dispose()


def open_file(path: Path, *, create: bool, readonly: bool, wait: float) -> Engines:
    """Creates engines for a SQLite file without opening the file.

    Raises StoreError if the file or its folder is missing or not writable.
    """
    if not path.exists() and (readonly or not create):
        raise StoreError(
            f"no database at {path}: agent solve and agent batch write one; --db names another",
            StoreTrouble.MISSING,
        )
    if not path.parent.is_dir():
        raise StoreError(
            f"no folder {path.parent} for the database: make it first", StoreTrouble.MISSING
        )
    # SQLite also writes a WAL and an index beside the file, so the folder must be writable.
    existing_paths = [path.parent, path] if path.exists() else [path.parent]
    writable = all(os.access(existing_path, os.W_OK) for existing_path in existing_paths)
    if not readonly and not writable:
        raise StoreError(
            f"the database {path} may not be written: change its permissions, or name another with --db",
            StoreTrouble.READ_ONLY,
        )
    reader = _sqlite_engine(path, _reading_mode(path, readonly), wait, query_only=True)
    writer = (
        None
        if readonly
        else _sqlite_engine(path, "mode=rwc" if create else "mode=rw", wait, query_only=False)
    )
    return Engines(
        display_name=str(path), address=str(path), path=path, writer=writer, reader=reader
    )


def _reading_mode(path: Path, readonly: bool) -> str:
    """Returns the SQLite URI mode for readers.

    On a read-only disk SQLite cannot create the WAL index beside the file. `immutable` needs no
    index, and is safe there because no process can write.
    """
    wal = path.with_name(path.name + "-wal")
    if (
        readonly
        and not os.access(path.parent, os.W_OK)
        and not (wal.exists() and wal.stat().st_size)
    ):
        return "mode=ro&immutable=1"
    return "mode=ro" if readonly else "mode=rw"


def _sqlite_engine(path: Path, mode: str, wait: float, *, query_only: bool) -> Engine:
    # The writer's pool has a single connection; readers share up to 64.
    uri = f"file:{quote(str(path.resolve()))}?{mode}"
    pool: dict[str, Any] = (
        {"pool_size": 8, "max_overflow": 56} if query_only else {"pool_size": 1, "max_overflow": 0}
    )
    engine = create_engine(
        "sqlite://", creator=_connector(uri, wait, query_only), poolclass=QueuePool, **pool
    )
    # Not an event listener: with any listener, SQLAlchemy looks up listeners on every statement.
    engine.dialect.do_begin = _begin_reading if query_only else _begin_writing  # type: ignore[method-assign]
    return engine


def _connector(uri: str, wait: float, query_only: bool) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=wait, check_same_thread=False, isolation_level=None
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA query_only = {'ON' if query_only else 'OFF'}")
        return connection

    return connect


def _begin_reading(dbapi_connection: PoolProxiedConnection) -> None:
    driver: Any = dbapi_connection.driver_connection
    driver.execute("BEGIN")


def _begin_writing(dbapi_connection: PoolProxiedConnection) -> None:
    """Begins with BEGIN IMMEDIATE, which waits for the write lock before the transaction instead
    of failing inside.
    """
    driver: Any = dbapi_connection.driver_connection
    # FULL syncs the WAL on commit (durable); NORMAL only at checkpoints. Set only on a change.
    level = "FULL" if dbapi_connection.info.get(DURABLE_OPTION, True) else "NORMAL"
    if dbapi_connection.info.get(_LEVEL) != level:
        driver.execute(f"PRAGMA synchronous = {level}")
        dbapi_connection.info[_LEVEL] = level
    driver.execute("BEGIN IMMEDIATE")


def set_journal(engines: Engines, wait: float) -> None:
    """Sets WAL mode, so that readers do not wait for the writer.

    On network disks WAL corrupts files, so a rollback journal is used.
    """
    if engines.path is None or engines.writer is None:
        return
    kind = network_disk(engines.path)
    requested_mode = "wal" if kind is None else "delete"
    if kind is not None:
        log.warning(
            "%s is on a network disk (%s): no WAL, so readers wait while a turn is written",
            engines.path,
            kind,
        )
    actual_mode = _journal(engines.writer, requested_mode, wait)
    if actual_mode != requested_mode:
        log.warning(
            "%s keeps its journal in mode %s, not %s", engines.path, actual_mode, requested_mode
        )


def _journal(writer: Engine, requested_mode: str, wait: float) -> str:
    """Sets the journal mode and returns the mode in force.

    SQLite does not wait for other writers in this statement, so the function retries for `wait`
    seconds.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

    again = Retrying(
        retry=retry_if_exception(_busy),
        stop=stop_after_delay(wait),
        wait=wait_random(0.01, 0.1),
        reraise=True,
    )
    [[mode]] = again(outside_transaction, writer, f"PRAGMA journal_mode = {requested_mode}")
    return str(mode)


def _busy(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError)
        and error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    )


def refresh_statistics(engines: Engines) -> None:
    """Refreshes the statistics of SQLite's query planner; failures are ignored.

    Without statistics listing 100,000 candidates takes four times as long.
    """
    if engines.path is None or engines.writer is None:
        return
    try:
        outside_transaction(
            engines.writer,
            "PRAGMA busy_timeout = 100",
            f"PRAGMA analysis_limit = {ANALYSED_ROWS}",
            "ANALYZE",
        )
    except sqlite3.Error as error:
        log.info("no fresh statistics in %s: %s", engines.path, error)


def outside_transaction(engine: Engine, *statements: str) -> list[Any]:
    """Executes statements that SQLite forbids inside transactions.

    Returns the rows of the last statement.
    """
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        rows: list[Any] = []
        for statement in statements:
            rows = cursor.execute(statement).fetchall()
        cursor.close()
        return rows
    finally:
        raw.close()


NETWORK_FILE_SYSTEMS = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.cephfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "pvfs2", "smb3", "smbfs", "wekafs")
)  # fmt: skip
MOUNTS = Path("/proc/self/mounts")


def network_disk(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Returns the type of the network file system that holds `path`; None for a local disk, or if
    the system has no mount table (not Linux).
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    # The innermost mount point above the path decides.
    folder = path.resolve()
    kinds = {_unescape(fields[1]): fields[2] for line in lines if len(fields := line.split()) > 2}
    for parent in (folder, *folder.parents):
        if (kind := kinds.get(str(parent))) is not None:
            return kind if kind in NETWORK_FILE_SYSTEMS else None
    return None


def _unescape(text: str) -> str:
    """Decodes the octal escapes of blanks, tabs and backslashes in mount points (proc(5))."""
    for code, char in ((r"\040", " "), (r"\011", "\t"), (r"\134", "\\")):
        text = text.replace(code, char)
    return text
