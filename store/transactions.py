"""Serialises writes: a single writing connection, used by one thread at a time, and any number of
readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, get_ident

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import configure_mappers
from sqlmodel import Session

from kernelwright.store.connection.engine import DURABLE_OPTION, Engines, open_file, set_journal
from kernelwright.store.connection.errors import StoreError, StoreTrouble, explaining_errors
from kernelwright.store.connection.server import address_of, open_server
from kernelwright.store.migrations import CURRENT_VERSION, migrate, version_of


class Transactions:
    """Opens write transactions and read sessions; rows are detached when a session ends."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._display_name = engines.display_name
        self._lock = RLock()
        self._inside: Connection | None = None
        """Connection of the thread inside `one_transaction`; None outside."""
        self._holder = 0
        self.wrote = False
        """Whether this process committed anything."""

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """Opens a write transaction, or a savepoint inside `one_transaction`.

        `durable`: this transaction and all earlier ones survive a power cut.
        """
        with explaining_errors(self._display_name), self._lock:
            if self._inside is not None:
                with self._inside.begin_nested():
                    yield self._inside
                return
            with self._writer().connect() as connection:
                connection.info[DURABLE_OPTION] = durable
                with connection.begin():
                    yield connection
            self.wrote = True

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Opens a session that reads data committed before the session began, and inside
        `one_transaction` also uncommitted writes of this thread.
        """
        with explaining_errors(self._display_name):
            # The thread inside `one_transaction` must see its own uncommitted rows.
            if self._inside is not None and self._holder == get_ident():
                with Session(self._inside, join_transaction_mode="rollback_only") as session:
                    yield session
                return
            with (
                self._engines.reader.connect() as connection,
                Session(connection, expire_on_commit=False) as session,
            ):
                yield session

    @contextmanager
    def one_transaction(self) -> Iterator[None]:
        """Commits all writes of this thread inside the block in a single durable transaction."""
        with self._lock:
            if self._inside is not None:
                yield
                return
            with self.write(durable=True) as connection:
                self._inside, self._holder = connection, get_ident()
                try:
                    yield
                finally:
                    self._inside, self._holder = None, 0

    def run_outside_transaction(self, work: Callable[[Engine], None]) -> None:
        """Runs `work` with the writing engine while other threads wait, for statements forbidden
        inside transactions (VACUUM).
        """
        with explaining_errors(self._display_name), self._lock:
            work(self._writer())

    def _writer(self) -> Engine:
        if self._engines.writer is None:
            raise StoreError(
                f"the database {self._display_name} was opened for reading only",
                StoreTrouble.READ_ONLY,
            )
        return self._engines.writer


def open_engines(database: str | Path, *, create: bool, readonly: bool, wait: float) -> Engines:
    """Opens and checks a database, and migrates the schema to the current version unless
    `readonly`.
    """
    # Mappers are otherwise configured by the first session, and rows built without a session
    # (`store.rows`) could not be read before.
    configure_mappers()
    address = address_of(database)
    if isinstance(address, Path):
        engines = open_file(address, create=create, readonly=readonly, wait=wait)
    else:
        engines = open_server(address, readonly, wait)
    try:
        with explaining_errors(engines.display_name):
            _prepare(engines, wait, create)
    except StoreError:
        engines.dispose()
        raise
    return engines


def _prepare(engines: Engines, wait: float, create: bool) -> None:
    """Checks the owner and version of the database before any change, then migrates."""
    with (engines.writer or engines.reader).begin() as connection:
        version = version_of(connection, engines.display_name)
    name = engines.display_name
    if version == 0 and engines.path is None and (engines.writer is None or not create):
        raise StoreError(
            f"the database {name} holds nothing yet: agent solve and agent batch write to it; --db names "
            "another",
            StoreTrouble.MISSING,
        )
    if engines.writer is None:
        if version < CURRENT_VERSION:
            raise StoreError(
                f"the database {name} has schema version {version}, this program reads {CURRENT_VERSION}: "
                f"run agent db migrate --db {name} first",
                StoreTrouble.OLDER,
            )
        return
    set_journal(engines, wait)
    migrate(engines.writer, engines.display_name)
