"""Serialises writes: one connection that writes, used by one thread at a time, and any number that read."""

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
    """One connection that writes; sessions to read with, whose rows are detached when they end."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._where = engines.where
        self._lock = RLock()
        self._inside: Connection | None = None
        """The connection of the thread that is inside `together`."""
        self._holder = 0
        self.wrote = False
        """Whether anything was committed here."""

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """Opens one transaction that writes, or a savepoint inside `together`.

        `durable`: it survives a power cut, and so does all before it.
        """
        with explaining_errors(self._where), self._lock:
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
        """Reads what was committed when the session began; inside of `one_transaction` also what this thread has
        written there.
        """
        with explaining_errors(self._where):
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
        """Commits every write inside, by this thread, in one durable transaction."""
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
        """Runs `work` on the writing engine while no other thread writes, for statements that no transaction may hold
        (VACUUM).
        """
        with explaining_errors(self._where), self._lock:
            work(self._writer())

    def _writer(self) -> Engine:
        if self._engines.writer is None:
            raise StoreError(
                f"the database {self._where} was opened for reading only", StoreTrouble.READ_ONLY
            )
        return self._engines.writer


def open_engines(where: str | Path, *, create: bool, readonly: bool, wait: float) -> Engines:
    """Opened, checked and, unless `readonly`, of the current version."""
    configure_mappers()  # else it is done at the first use of a session, and rows made without one cannot be read
    address = address_of(where)
    if isinstance(address, Path):
        engines = open_file(address, create=create, readonly=readonly, wait=wait)
    else:
        engines = open_server(address, readonly, wait)
    try:
        with explaining_errors(engines.where):
            _prepare(engines, wait, create)
    except StoreError:
        engines.dispose()
        raise
    return engines


def _prepare(engines: Engines, wait: float, create: bool) -> None:
    """Checks whose database it is before anything is changed, then brings it to the current version."""
    with (engines.writer or engines.reader).begin() as connection:
        version = version_of(connection, engines.where)
    if version == 0 and engines.path is None and (engines.writer is None or not create):
        raise StoreError(
            f"the database {engines.where} holds nothing yet: agent solve and agent batch write to it; --db names "
            "another",
            StoreTrouble.MISSING,
        )
    if engines.writer is None:
        if version < CURRENT_VERSION:
            raise StoreError(
                f"the database {engines.where} has schema version {version}, this program reads {CURRENT_VERSION}: "
                f"run agent db migrate --db {engines.where} first",
                StoreTrouble.OLDER,
            )
        return
    set_journal(engines, wait)
    migrate(engines.writer, engines.where)
