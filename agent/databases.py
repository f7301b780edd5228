"""Where what happened is kept."""

from __future__ import annotations

from pathlib import Path

from store.database import Store

DEFAULT = Path(".kernelwright") / "runs.db"
"""In the folder where the command is given."""


def open_store(where: str | None, *, readonly: bool = False, create: bool = True) -> Store:
    """A file or a server's URL; without one the default's, whose folder is made (where `create`). Raises StoreError."""
    create = create and not readonly
    if where is not None:
        return Store.open(where, readonly=readonly, create=create)
    if create:
        DEFAULT.parent.mkdir(exist_ok=True)
        (DEFAULT.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    return Store.open(DEFAULT, readonly=readonly, create=create)


def verdicts_beside(where: str | None) -> Path | None:
    """The folder for verdicts that may be used again; None for a server."""
    if where is None:
        return DEFAULT.parent
    return None if "://" in where else Path(where).expanduser().parent / ".kernelwright"
