"""One process at a time measures on a GPU: a lock on a file named after the GPU, held for the length of a verdict,
freed by the kernel when its holder dies.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.tools.report import InfrastructureError

POLL_SECONDS = 0.02
EVERYBODY = 0o666
"""Mode of the file: processes of other users measure on the same GPU."""


def lock_file(gpu: str) -> Path:
    """gpu: its UUID, or a name that all processes of this machine use for it."""
    safe = "".join(c if c.isalnum() or c == "-" else "_" for c in gpu)
    return Path(tempfile.gettempdir(), f"kernelwright-{safe}.lock")


@contextlib.contextmanager
def gpu_lease(gpu: str, seconds: float = 600.0, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Raises InfrastructureError where another process keeps the GPU for longer than `seconds`."""
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file(gpu), mode=EVERYBODY, poll_interval=POLL_SECONDS)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting("waiting for the GPU: another process is measuring on it")
            lock.acquire(timeout=seconds)
    except Timeout:
        raise InfrastructureError(
            f"another process has measured on this GPU for over {seconds:g} s: wait for it, or see who holds "
            f"{lock.lock_file}"
        ) from None
    try:
        yield
    finally:
        lock.release()
