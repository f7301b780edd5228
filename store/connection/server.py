"""Creates SQLAlchemy engines for PostgreSQL servers, and parses database addresses.

Readers see a snapshot (REPEATABLE READ, READ ONLY); writers see committed data at the start of
each statement (READ COMMITTED). Durability depends on the server's `synchronous_commit` (on by
default).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from kernelwright.store.connection.engine import Engines
from kernelwright.store.connection.errors import StoreError, StoreTrouble

POOL_CONNECTIONS = 8
"""Number of idle connections to a server."""
MAX_OVERFLOW_CONNECTIONS = 32
"""Maximum number of connections of a process; PostgreSQL accepts 100 in total by default."""
DATABASE_CONNECT_SECONDS = 10
"""Maximum number of seconds for connecting to a server, unless the URL sets `connect_timeout`."""
DRIVER_OF_SCHEME = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""SQLAlchemy driver for each URL scheme that libpq and hosting services use."""


def address_of(database: str | Path) -> Path | URL:
    """Returns the path of a SQLite file or the URL of a server.

    Raises StoreError for in-memory databases, whose content would be lost.
    """
    text = str(database)
    if "://" not in text and text != ":memory:":
        return Path(text).expanduser()
    try:
        url = make_url(text if "://" in text else "sqlite://")
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise StoreError(
            f"{text.partition('://')[0]}://... is no database URL: give FILE.db or "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME",
            StoreTrouble.UNUSABLE,
        ) from None
    if url.drivername.partition("+")[0] != "sqlite":
        url = url.set(drivername=DRIVER_OF_SCHEME.get(url.drivername, url.drivername))
        # libpq accepts ?password=...: move it to the place from which it can be hidden.
        query_password = url.query.get("password")
        if isinstance(query_password, str):
            url = url.difference_update_query(["password"]).set(password=query_password)
        return url
    if not url.database or url.database == ":memory:":
        raise StoreError(
            "a database in memory would be lost: give the path of a file", StoreTrouble.UNUSABLE
        )
    return Path(url.database).expanduser()


def without_password(database: str | Path) -> str:
    """Returns the URL without its password, fit for messages, files and logs.

    Raises StoreError if the URL is invalid.
    """
    address = address_of(database)
    return (
        str(database) if isinstance(address, Path) else address.render_as_string(hide_password=True)
    )


def open_server(url: URL, readonly: bool, wait: float) -> Engines:
    """Creates engines for PostgreSQL or another server with a SQLAlchemy driver.

    `wait`: maximum seconds to wait for locks of other processes.
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
    # ImportError: psycopg is missing, or psycopg finds no libpq.
    except (NoSuchModuleError, ImportError) as error:
        raise StoreError(_which_driver(url.drivername), StoreTrouble.UNREACHABLE) from error
    reader = engine
    if postgres:
        event.listen(engine, "connect", _waiter(wait))
        reader = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
    return Engines(
        display_name=url.render_as_string(hide_password=True),
        address=url.render_as_string(hide_password=False),
        path=None,
        writer=None if readonly else engine,
        reader=reader,
    )


def _which_driver(drivername: str) -> str:
    if drivername == "postgresql+psycopg":
        return "no driver for PostgreSQL: pip install 'kernelwright[postgres]'"
    if drivername.startswith("postgresql+"):
        return (
            f"no driver for {drivername}: give postgresql://USER:PASSWORD@HOST:PORT/NAME "
            "(pip install 'kernelwright[postgres]')"
        )
    return f"no driver for {drivername}: give FILE.db, or postgresql:// after pip install 'kernelwright[postgres]'"


def _waiter(wait: float) -> Callable[[Any, object], None]:
    """Returns a connection listener that limits the waiting time for locks."""

    def connected(connection: Any, record: object) -> None:
        connection.execute(f"SET lock_timeout = {max(1, int(wait * 1000))}")
        connection.commit()

    return connected
