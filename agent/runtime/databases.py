"""Opens the database of a command: the database of --db, or the default in the current folder."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.store.database import Store

DEFAULT_DATABASE = Path(".kernelwright") / "runs.db"
"""The default database, in the command's current folder."""


def open_store(database: str | None, *, readonly: bool = False, create: bool = True) -> Store:
    """Opens a file or a server's URL; None is the default, whose folder is made if `create` is
    set.

    Raises:
        InputError: `database` is a folder.
        StoreError: The database cannot be opened.
    """
    create = create and not readonly
    if database is not None and "://" not in database and Path(database).expanduser().is_dir():
        raise InputError(
            f"--db {database} is a folder: name a file in it, such as --db {Path(database) / 'runs.db'}"
        )
    if database is not None:
        return Store.open(database, readonly=readonly, create=create)
    if create:
        DEFAULT_DATABASE.parent.mkdir(exist_ok=True)
        (DEFAULT_DATABASE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    return Store.open(DEFAULT_DATABASE, readonly=readonly, create=create)


def verdict_cache_folder(database: str | None) -> Path | None:
    """Returns the folder of the verdict cache; None for a server."""
    if database is None:
        return DEFAULT_DATABASE.parent
    return None if "://" in database else Path(database).expanduser().parent / ".kernelwright"
