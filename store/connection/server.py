"""SQLAlchemy engines for PostgreSQL servers, and how a database is named.

Readers see one moment (REPEATABLE READ, READ ONLY) and writers what is committed when each statement begins. Commits
survive a power cut as the server is set up to have it (`synchronous_commit`, on by default).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from kernelwright.store.connection.engine import Engines
from kernelwright.store.connection.errors import StoreError, StoreTrouble

POOL_CONNECTIONS = 8
"""Connections that stay open to a server."""
MAX_OVERFLOW_CONNECTIONS = 32
"""Further connections that one process may open at once: a server allows 100 in all by default."""
DATABASE_CONNECT_SECONDS = 10
"""Seconds that a server may take to accept a connection; `connect_timeout` in the URL names others."""
DRIVER_OF_SCHEME = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""Names that libpq and many hosts give, and the driver for them."""


def address_of(where: str | Path) -> Path | URL:
    """Returns a path, or the URL of a server. Raises StoreError for a database in memory: nothing would be kept."""
    text = str(where)
    if "://" not in text and text != ":memory:":
        return Path(text).expanduser()
    try:
        url = make_url(text if "://" in text else "sqlite://")
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise StoreError(
            f"{text.partition('://')[0]}://... is no database URL: give FILE.db or "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME",
            StoreTrouble.UNUSABLE,
        ) from None
    if url.drivername.partition("+")[0] != "sqlite":
        url = url.set(drivername=DRIVER_OF_SCHEME.get(url.drivername, url.drivername))
        asked = url.query.get("password")
        return (
            url.difference_update_query(["password"]).set(password=asked)
            if isinstance(asked, str)
            else url
        )
    if not url.database or url.database == ":memory:":
        raise StoreError(
            "a database in memory would be lost: give the path of a file", StoreTrouble.UNUSABLE
        )
    return Path(url.database).expanduser()


def without_password(where: str | Path) -> str:
    """Returns the URL without its password, for people, files and logs. Raises StoreError where it is no database's."""
    address = address_of(where)
    return str(where) if isinstance(address, Path) else address.render_as_string(hide_password=True)


def split_password(where: str) -> tuple[str, dict[str, str]]:
    """Returns the URL without its password, and the environment in which libpq finds that: others on this machine can
    read the words of a command.
    """
    address = address_of(where)
    if isinstance(address, Path) or address.password is None:
        return where, {}
    bare = URL.create(**{**address._asdict(), "password": None})
    return bare.render_as_string(hide_password=False), {"PGPASSWORD": address.password}


def open_server(url: URL, readonly: bool, wait: float) -> Engines:
    """Opens PostgreSQL, or another server that SQLAlchemy has a driver for. `wait`: seconds to wait for another
    process's lock.
    """
    postgres = url.drivername == "postgresql+psycopg"
    timeout = (
        {"connect_timeout": DATABASE_CONNECT_SECONDS}
        if postgres and "connect_timeout" not in url.query
        else {}
    )
    pool: dict[str, Any] = {
        "pool_size": POOL_CONNECTIONS,
        "max_overflow": MAX_OVERFLOW_CONNECTIONS - POOL_CONNECTIONS,
    }
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=timeout, **pool)
    except (
        NoSuchModuleError,
        ImportError,
    ) as error:  # the latter also where psycopg finds no libpq
        raise StoreError(_which_driver(url.drivername), StoreTrouble.UNREACHABLE) from error
    reader = engine
    if postgres:
        event.listen(engine, "connect", _waiter(wait))
        reader = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
    return Engines(
        where=url.render_as_string(hide_password=True), address=url.render_as_string(hide_password=False), path=None,
        writer=None if readonly else engine, reader=reader,
    )  # fmt: skip


def _which_driver(drivername: str) -> str:
    if drivername == "postgresql+psycopg":
        return "no driver for PostgreSQL: pip install 'kernelwright[postgres]'"
    if drivername.startswith("postgresql+"):
        return (
            f"no driver for {drivername}: give postgresql://USER:PASSWORD@HOST:PORT/NAME "
            "(pip install 'kernelwright[postgres]')"
        )
    return f"no driver for {drivername}: give FILE.db, or postgresql:// after pip install 'kernelwright[postgres]'"


def _waiter(wait: float) -> Any:
    """Whoever holds a lock is waited for so long, and not for ever."""

    def connected(connection: Any, record: Any) -> None:
        connection.execute(f"SET lock_timeout = {max(1, int(wait * 1000))}")
        connection.commit()

    return connected
