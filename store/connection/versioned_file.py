"""SQLite files of one version of tables, upgraded where they are opened: the records of the judge service and of MCP.

The store's own database is opened by engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from kernelwright.errors import InputError

BUSY_SECONDS = 30.0
"""Seconds for which a statement waits while another process writes."""
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")


@dataclass(frozen=True)
class Tables:
    """The tables of a file, and how earlier versions of them become these."""

    metadata: sa.MetaData
    version: int
    """The version of the tables, as `PRAGMA user_version`."""
    upgrades: Mapping[int, Sequence[str]]
    """The statements that make of each earlier version the next one."""


def open_versioned_file(file: Path, tables: Tables, option: str) -> sa.Engine:
    """Opens a file, made where it is missing, readable for its user alone. Any thread may use the engine.

    option: the command's option that names the file. Raises InputError where the file cannot be used, or is of a
    version that is not known.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # SQLite's own files beside it take its mode
        engine = sa.create_engine(
            f"sqlite:///{file}",
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        )
        sa.event.listen(engine, "connect", _prepare)
        with engine.begin() as connection:
            _upgrade(connection, tables, f"{option} {file}")
    except (sa.exc.DBAPIError, OSError) as error:
        why = getattr(error, "orig", error)
        raise InputError(
            f"{option} {file} cannot be used ({why}): name a file in a folder that you may write"
        ) from None
    return engine


def _upgrade(connection: sa.Connection, tables: Tables, name: str) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version > tables.version:
        raise InputError(f"{name} was written by a newer version: update kernelwright")
    if version not in (0, *tables.upgrades, tables.version):
        raise InputError(f"{name} was not written by this program: name another file")
    for earlier in range(version or tables.version, tables.version):
        for statement in tables.upgrades[earlier]:
            connection.exec_driver_sql(statement)
    tables.metadata.create_all(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {tables.version}")


def _prepare(connection: Any, _: Any) -> None:
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
