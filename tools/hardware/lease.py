"""One process at a time measures on a GPU: a lock on a file named after the GPU, held for the length of a verdict,
freed by the kernel when its holder dies.
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


def lock_file(gpu: str) -> Path:
    """gpu: its UUID, or a name that all processes of this machine use for it."""
    safe = "".join(c if c.isalnum() or c == "-" else "_" for c in gpu)
    return Path(tempfile.gettempdir(), f"kernelwright-{safe}.lock")


@contextlib.contextmanager
def gpu_lease(gpu: str, seconds: float = 600.0, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Raises InfrastructureError where another process keeps the GPU for longer than `seconds`."""
    path = lock_file(gpu)
    old = os.umask(0)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    finally:
        os.umask(old)
    try:
        _wait(fd, path, seconds, waiting)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, path: Path, seconds: float, waiting: Callable[[str], None]) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"another process has measured on this GPU for over {seconds:g} s: wait for it, or see "
                    f"who holds {path}"
                ) from None
            waiting("waiting for the GPU: another process is measuring on it")
            time.sleep(0.02)
