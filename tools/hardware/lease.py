"""Who is at work on a GPU, among all processes of this machine: several may check answers side by side, and whoever
times is alone. Locks on two files named after the GPU, freed by the kernel when their holder dies.

Why not filelock: docs/explanation/libraries.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.tools.report import InfrastructureError

POLL_SECONDS = 0.002
FILE_MODE = 0o666
"""Mode of the files: processes of other users measure on the same GPU."""


def lock_file(gpu: str) -> Path:
    """gpu: its UUID, or a name that all processes of this machine use for it."""
    safe = "".join(c if c.isalnum() or c == "-" else "_" for c in gpu)
    return Path(tempfile.gettempdir(), f"kernelwright-{safe}.lock")


def door_file(gpu: str) -> Path:
    """Held for the moment in which somebody comes in, and for as long as he who wants to be alone waits: nobody
    overtakes him.
    """
    return lock_file(gpu).with_suffix(".door")


@contextlib.contextmanager
def gpu_lease(
    gpu: str, seconds: float = 600.0, waiting: Callable[[str], None] = lambda _: None, *, shared: bool = False
) -> Iterator[None]:
    """shared: beside others who share it too; False: alone. Raises InfrastructureError where another process keeps
    the GPU for longer than `seconds`.
    """
    until = time.monotonic() + seconds
    with open_until_end(door_file(gpu)) as door, open_until_end(lock_file(gpu)) as lock:
        free = try_lock(door, fcntl.LOCK_EX) and try_lock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if not free:
            waiting("waiting for the GPU: another process is measuring on it")
            _wait_for_lock(door, fcntl.LOCK_EX, until, gpu, seconds)
            _wait_for_lock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, until, gpu, seconds)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


@contextlib.contextmanager
def open_until_end(path: Path) -> Iterator[int]:
    """A descriptor of the file, which is made where it is not there; what it holds is freed at the end.

    It is unlocked and not only closed: a child that was forked meanwhile has the descriptor too, and would keep it.
    """
    handle = _open(path)
    try:
        yield handle
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):  # O_CREAT on another user's file is refused in a folder for all
        return os.open(path, flags)
    handle = os.open(path, flags | os.O_CREAT, FILE_MODE)
    with contextlib.suppress(PermissionError):  # made by another user in between
        os.fchmod(handle, FILE_MODE)
    return handle


def try_lock(handle: int, kind: int) -> bool:
    """Whether the lock of that kind (`fcntl.LOCK_EX` or `LOCK_SH`) on an open file is this descriptor's now."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(handle: int, kind: int, until: float, gpu: str, seconds: float) -> None:
    while not try_lock(handle, kind):
        if time.monotonic() > until:
            raise InfrastructureError(
                f"another process has measured on this GPU for over {seconds:g} s: wait for it, or see who holds "
                f"{lock_file(gpu)}"
            )
        time.sleep(POLL_SECONDS)
