"""Folders of zygotes, locked by their owner while it lives, so that the next owner finds and
removes the folders of a killed owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER_PREFIX = "kernelwright-"
MIN_AGE_SECONDS = 60.0
"""A folder younger than this may just not have been locked yet."""
REMOVAL_SECONDS = 1.0
_existing: dict[Path, int] = {}
"""Existing folders, each with the process that made it: a forked child does not remove its
parent's folders.
"""


def make_folder(name: str) -> tuple[Path, int]:
    """Makes a temporary folder; returns its path, and the descriptor that locks it until closed
    or until its owner dies.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{name}-"))
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(
            OSError
        ):  # a file system without locks: then nothing is swept there either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        folder.rmdir()
        raise
    _existing[folder] = os.getpid()
    return folder, lock


def remove_empty() -> None:
    """Removes the folders of this process without a working zygote: for a process that ends at
    once, just after it made a folder. A zygote removes its own folder when its owner is gone.
    """
    for folder in [folder for folder, owner in list(_existing.items()) if owner == os.getpid()]:
        with contextlib.suppress(OSError):  # there is something in it, or it is gone
            folder.rmdir()


def remove(folder: Path, seconds: float = REMOVAL_SECONDS) -> None:
    """Removes a folder, together with files written by a dying process within `seconds`."""
    deadline = time.monotonic() + seconds
    _existing.pop(folder, None)
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
        shutil.rmtree(folder, ignore_errors=True)


def sweep(name: str, young: float = MIN_AGE_SECONDS) -> None:
    """Removes folders with this name in the temporary folder after their owner was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}{name}-*"):
        with contextlib.suppress(OSError), _locked(folder) as free:
            if free and time.time() - folder.stat().st_mtime > young:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Returns whether no process holds the folder. Raises OSError if it belongs to another user,
    or no longer exists.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            yield False
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(lock)
