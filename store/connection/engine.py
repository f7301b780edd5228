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
"""Key of a connection's `info`: whether its next transaction must survive a power cut."""
_LEVEL = "synchronous"
"""Key of a connection's `info`: what that PRAGMA was last set to."""

ANALYSED_ROWS = 400
"""Rows of an index that ANALYZE looks at: milliseconds, and enough to choose between plans
(sqlite.org/lang_analyze.html).
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engines:
    """One connection that writes, and many that read."""

    where: str
    """The path, or the URL without its password."""
    address: str
    """The path of the database, or its URL with the password: opens the database again."""
    path: Path | None
    """The path of the file; None for a server."""
    writer: Engine | None
    """None where the database was opened for reading only."""
    reader: Engine

    def dispose(self) -> None:
        """Closes the readers first: the writer is then the last connection and empties the WAL."""
        self.reader.dispose()
        if self.writer is not None:
            self.writer.dispose()


def open_file(path: Path, *, create: bool, readonly: bool, wait: float) -> Engines:
    """Makes engines without opening the file. Raises StoreError where the file, or the folder it would be made in, is
    missing.
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
    if not readonly and not all(
        os.access(place, os.W_OK) for place in (path.parent, path) if place.exists()
    ):
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
    return Engines(where=str(path), address=str(path), path=path, writer=writer, reader=reader)


def _reading_mode(path: Path, readonly: bool) -> str:
    """Returns the mode for reading. On a read-only disk SQLite can make no index beside the file: `immutable` reads
    without one, which is right where no process can write.
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
    uri = f"file:{quote(str(path.resolve()))}?{mode}"
    pool: dict[str, Any] = (
        {"pool_size": 8, "max_overflow": 56} if query_only else {"pool_size": 1, "max_overflow": 0}
    )
    engine = create_engine(
        "sqlite://", creator=_connector(uri, wait, query_only), poolclass=QueuePool, **pool
    )
    # not a listener of the engine: where there is one, each statement pays for looking who listens
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
    """Begins with IMMEDIATE, which waits for the write lock here, where waiting is harmless, and not in the middle of a
    transaction.
    """
    driver: Any = dbapi_connection.driver_connection
    level = "FULL" if dbapi_connection.info.get(DURABLE_OPTION, True) else "NORMAL"
    if dbapi_connection.info.get(_LEVEL) != level:
        driver.execute(f"PRAGMA synchronous = {level}")
        dbapi_connection.info[_LEVEL] = level
    driver.execute("BEGIN IMMEDIATE")


def set_journal(engines: Engines, wait: float) -> None:
    """WAL, which lets readers read while one writes; a rollback journal on a network disk, where WAL would corrupt
    the file.
    """
    if engines.path is None or engines.writer is None:
        return
    kind = network_disk(engines.path)
    wanted = "wal" if kind is None else "delete"
    if kind is not None:
        log.warning(
            "%s is on a network disk (%s): no WAL, so readers wait while a turn is written",
            engines.path,
            kind,
        )
    got = _journal(engines.writer, wanted, wait)
    if got != wanted:
        log.warning("%s keeps its journal in mode %s, not %s", engines.path, got, wanted)


def _journal(writer: Engine, wanted: str, wait: float) -> str:
    """Sets the journal mode and returns the mode in force. SQLite does not wait for another writer here, so this tries
    again for `wait` seconds.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

    again = Retrying(
        retry=retry_if_exception(_busy),
        stop=stop_after_delay(wait),
        wait=wait_random(0.01, 0.1),
        reraise=True,
    )
    [[mode]] = again(outside_transaction, writer, f"PRAGMA journal_mode = {wanted}")
    return str(mode)


def _busy(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError)
        and error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    )


def refresh_statistics(engines: Engines) -> None:
    """Refreshes the statistics by which SQLite plans its queries: without them a list of 100,000 candidates takes four
    times as long. A failure is ignored.
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
    """Executes statements that SQLite does not allow inside of a transaction. Returns the rows of the last one."""
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
    """The type of the network file system that holds `path`; None on a local disk, or where the system does not say
    (not Linux).
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    folder = path.resolve()
    kinds = {_unescape(fields[1]): fields[2] for line in lines if len(fields := line.split()) > 2}
    for parent in (folder, *folder.parents):
        if (kind := kinds.get(str(parent))) is not None:
            return kind if kind in NETWORK_FILE_SYSTEMS else None
    return None


def _unescape(text: str) -> str:
    for code, char in ((r"\040", " "), (r"\011", "\t"), (r"\134", "\\")):
        text = text.replace(code, char)
    return text
