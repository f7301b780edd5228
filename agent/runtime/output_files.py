"""Checks, before minutes of work, that the output files can be written."""

from __future__ import annotations

import os
from pathlib import Path

from kernelwright.errors import InputError


def refuse_unwritable_file(path: Path, option: str = "--out") -> None:
    """Raises InputError if no file can be written at `path`: it is a folder, its folder is
    missing, or its folder takes no new file. Leaves no file behind.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"{path} cannot be written: name a file in a folder that exists with {option}"
        )
    _try_new_file(path.absolute().parent, path, option)


def refuse_unwritable_folder(path: Path, option: str = "--out") -> None:
    """Raises InputError if `path` is a file, or neither is nor could become a folder for new
    files.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file: name a folder with {option}")
    existing = next(
        folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir()
    )
    _try_new_file(existing, path, option)


def _try_new_file(folder: Path, path: Path, option: str) -> None:
    """Makes and removes an empty file: permissions alone do not reveal read-only disks or /proc."""
    trial_file = folder / f".{os.getpid()}.kernelwright.part"
    try:
        trial_file.touch()
        trial_file.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{path} cannot be written ({reason}): name another place with {option}"
        ) from None
