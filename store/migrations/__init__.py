"""Schema migrations: numbered, forward only, each in its own transaction.

Published migrations are never edited, because they create the tables of their version.
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
"""Modules with `apply(connection)`; the first creates version 1."""

CURRENT_VERSION = len(MIGRATIONS)
APPLICATION_ID = 0x4B524E57
"""`PRAGMA application_id` of Kernelwright files: "KRNW"."""

_version = Table(
    "store_version",
    MetaData(),
    Column("application", String(40), primary_key=True),
    Column("version", Integer, nullable=False),
)
"""Table with the schema version on servers.

SQLite stores the version in the file header.
"""
_NAME = "kernelwright"


def version_of(connection: Connection, database: str) -> int:
    """Returns the schema version, 0 for an empty database.

    Raises StoreError for databases of other programs and for newer versions.
    """
    version = (
        _sqlite_version(connection, database)
        if connection.dialect.name == "sqlite"
        else _server_version(connection, database)
    )
    if version > CURRENT_VERSION:
        raise StoreError(
            f"the database {database} has schema version {version}, this program knows {CURRENT_VERSION}: "
            "update kernelwright",
            StoreTrouble.NEWER,
        )
    return version


def _foreign(database: str) -> StoreError:
    return StoreError(
        f"the database {database} belongs to another program: name another one with --db",
        StoreTrouble.FOREIGN,
    )


def _sqlite_version(connection: Connection, database: str) -> int:
    # An empty file has neither application id, version nor tables.
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if application == APPLICATION_ID:
        return int(version)
    if application or version or tables:
        raise _foreign(database)
    return 0


def _server_version(connection: Connection, database: str) -> int:
    names = set(inspect(connection).get_table_names())
    if _version.name in names:
        own_row = _version.c.application == _NAME
        version = connection.execute(select(_version.c.version).where(own_row)).scalar()
        return int(version or 0)
    if names & set(m0001_tables.metadata.tables):
        raise _foreign(database)
    return 0


def migrate(engine: Engine, database: str, upto: int = CURRENT_VERSION) -> int:
    """Migrates the database to version `upto` and returns the version.

    Each step is a transaction: a failing step leaves the previous version.
    """
    while True:
        with engine.begin() as connection:
            _lock(connection)
            version = version_of(connection, database)
            if version >= upto:
                return version
            MIGRATIONS[version].apply(connection)
            _stamp(connection, version + 1)


def _lock(connection: Connection) -> None:
    """Makes concurrent migrations wait on PostgreSQL. On SQLite, BEGIN IMMEDIATE already does."""
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
