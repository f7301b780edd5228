"""Files from a candidate's folder to the judge's and back, while the candidate may be alive and change what lies there.

Every folder is opened from the one above it and no link is followed, so nothing is read or written outside. What is there already stays as it is: a
library that a process has mapped and that is written over ends that process at its next look at a symbol.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 512 << 20
"""Of compiled artefacts that are taken from one candidate."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_new(source: Path, target: Path, most: int = MOST_BYTES) -> None:
    """Regular files below `source` that `target` lacks, `most` bytes of them at most. Where `source` is missing or a link, nothing; `target`'s own folder must be there, or its parent."""
    try:
        with _opened(source) as made, _made(target) as into:
            _copy_folder(made, into, most)
    except (FileNotFoundError, NotADirectoryError):
        return


def _copy_folder(made: int, into: int, room: int) -> int:
    """Gives the bytes that are left."""
    for name in os.listdir(made):
        try:
            kind = os.stat(name, dir_fd=made, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                with _opened(name, made) as inner, _made(name, into) as place:
                    room = _copy_folder(inner, place, room)
            elif stat.S_ISREG(kind):
                room = _copy_file(name, made, into, room)
        except OSError:  # a link where a folder was, a file that is there already or is gone: theirs to lose
            continue
    return room


def _copy_file(name: str, made: int, into: int, room: int) -> int:
    with os.fdopen(os.open(name, _READ, dir_fd=made), "rb") as origin:
        described = os.fstat(origin.fileno())
        if not stat.S_ISREG(described.st_mode) or described.st_size > room:
            return room
        with os.fdopen(os.open(name, _NEW, 0o644, dir_fd=into), "wb") as copy:
            shutil.copyfileobj(origin, copy)
    return room - described.st_size


@contextlib.contextmanager
def _opened(name: str | Path, above: int | None = None) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _made(name: str | Path, above: int | None = None) -> Iterator[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=above)
    with _opened(name, above) as fd:
        yield fd
