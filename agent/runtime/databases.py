"""The database that a command opens: the one named with --db, or the default in the current folder."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.store.database import Store

DEFAULT_DATABASE = Path(".kernelwright") / "runs.db"
"""The default database, in the folder where the command is given."""


def open_store(where: str | None, *, readonly: bool = False, create: bool = True) -> Store:
    """Opens a file or a server's URL; None is the default, whose folder is made where `create` is set.

    Raises:
        InputError: `where` is a folder.
        StoreError: The database cannot be opened.
    """
    create = create and not readonly
    if where is not None and "://" not in where and Path(where).expanduser().is_dir():
        raise InputError(
            f"--db {where} is a folder: name a file in it, such as --db {Path(where) / 'runs.db'}"
        )
    if where is not None:
        return Store.open(where, readonly=readonly, create=create)
    if create:
        DEFAULT_DATABASE.parent.mkdir(exist_ok=True)
        (DEFAULT_DATABASE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    return Store.open(DEFAULT_DATABASE, readonly=readonly, create=create)


def verdict_cache_folder(where: str | None) -> Path | None:
    """The folder for verdicts that may be used again; None for a server."""
    if where is None:
        return DEFAULT_DATABASE.parent
    return None if "://" in where else Path(where).expanduser().parent / ".kernelwright"
