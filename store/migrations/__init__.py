"""Numbered, forward only, each in one transaction.

A published migration is never edited: it makes the tables as they were then.
"""

from __future__ import annotations

from types import ModuleType

from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Connection

from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.migrations import m0001_tables, m0002_search, m0003_origin

MIGRATIONS: tuple[ModuleType, ...] = (m0001_tables, m0002_search, m0003_origin)
"""Each has `apply(connection)`; the first makes version 1."""

CURRENT_VERSION = len(MIGRATIONS)
APPLICATION_ID = 0x4B524E57
"""`PRAGMA application_id` of our files: "KRNW"."""

_version = Table(
    "store_version",
    MetaData(),
    Column("application", String(40), primary_key=True),
    Column("version", Integer, nullable=False),
)
"""The table in which a server keeps the version that SQLite keeps in the file's header."""
_NAME = "kernelwright"


def version_of(connection: Connection, where: str) -> int:
    """Returns the version of the schema, 0 for an empty database. Raises StoreError for another program's database, and
    for a newer version than this program knows.
    """
    version = (
        _sqlite_version(connection, where)
        if connection.dialect.name == "sqlite"
        else _server_version(connection, where)
    )
    if version > CURRENT_VERSION:
        raise StoreError(
            f"the database {where} has schema version {version}, this program knows {CURRENT_VERSION}: "
            "update kernelwright",
            StoreTrouble.NEWER,
        )
    return version


def _foreign(where: str) -> StoreError:
    return StoreError(
        f"the database {where} belongs to another program: name another one with --db",
        StoreTrouble.FOREIGN,
    )


def _sqlite_version(connection: Connection, where: str) -> int:
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if application == APPLICATION_ID:
        return int(version)
    if application or version or tables:
        raise _foreign(where)
    return 0


def _server_version(connection: Connection, where: str) -> int:
    names = set(inspect(connection).get_table_names())
    if _version.name in names:
        found = connection.execute(
            select(_version.c.version).where(_version.c.application == _NAME)
        ).scalar()
        return int(found or 0)
    if names & set(m0001_tables.metadata.tables):
        raise _foreign(where)
    return 0


def migrate(engine: Engine, where: str, upto: int = CURRENT_VERSION) -> int:
    """Brings the database to version `upto`, one transaction a step; a step that fails leaves the version before it.

    Gives the version.
    """
    while True:
        with engine.begin() as connection:
            _lock(connection)
            version = version_of(connection, where)
            if version >= upto:
                return version
            MIGRATIONS[version].apply(connection)
            _stamp(connection, version + 1)


def _lock(connection: Connection) -> None:
    """Two processes that open a new database at once: the second waits. On SQLite BEGIN IMMEDIATE has seen to it."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})")


def _stamp(connection: Connection, version: int) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {version}")
    elif version == 1:
        _version.create(connection)
        connection.execute(insert(_version).values(application=_NAME, version=version))
    else:
        connection.execute(update(_version).values(version=version))
