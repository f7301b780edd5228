"""Lets tests that fill a GPU's memory run while no other GPU test does, in whatever process (`pytest -n 6`).

Every GPU test holds one file lock, shared; a test marked `alone_on_gpu` holds it exclusively. Who waits for it holds a
second lock, the gate, so that a test that wants to be alone is not overtaken for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCKS = Path(tempfile.gettempdir())


@contextlib.contextmanager
def gpu_lock(folder: Path = LOCKS, *, alone: bool) -> Iterator[None]:
    """Holds the GPU of this machine for a test: with others, or alone. The lock files lie in `folder`."""
    with (
        (folder / "kernelwright-gpu-tests.gate").open("a") as gate,
        (folder / "kernelwright-gpu-tests").open("a") as lock,
    ):
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield  # closing the file releases the lock
