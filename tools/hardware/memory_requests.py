"""Requests for memory of a GPU, from a process which holds the GPU exclusively to other processes
of this machine.

A request is a file beside the lease's file (tools/hardware/lease.py), locked while valid: the
operating system ends the request of a dying process. A process which has freed its memory
adds a byte to the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kernelwright.tools.hardware.lease import (
    LEASE_POLL_SECONDS,
    entrance_file,
    lock_file,
    open_and_unlock,
    timing_file,
    try_lock,
)

MAX_WAIT_SECONDS = 2.0
"""Seconds for which the others are waited for at most."""
_DIGITS = 20
"""Number of digits of the requested bytes, and of the request's number."""


class MemoryRequest(NamedTuple):
    """Request for memory by a process which holds a GPU exclusively."""

    needed: int
    """Requested free bytes."""
    number: int
    """Number of the request, never reused."""


def request_file(gpu: str) -> Path:
    """Returns the path of the GPU's request file. gpu: as for `lease.lock_file`."""
    return lock_file(gpu).with_suffix(".memory")


def make_lock_files(gpu: str) -> list[Path]:
    """Creates the files shared by processes measuring on a GPU; returns their paths."""
    locks = [lock_file(gpu), timing_file(gpu)]
    files = [*locks, *map(entrance_file, locks), request_file(gpu)]
    for file in files:
        with open_and_unlock(file):
            pass
    return files


@contextlib.contextmanager
def requesting_memory(gpu: str, needed: int) -> Iterator[Callable[[], int]]:
    """Publishes a request for free bytes while the block runs; yields a function that returns the
    number of answers. Only for the process which holds the GPU exclusively: a second request
    waits for the first.
    """
    with open_and_unlock(request_file(gpu)) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{needed:0{_DIGITS}d}{time.monotonic_ns():0{_DIGITS}d}".encode(), 0)
        yield lambda: os.fstat(handle).st_size - 2 * _DIGITS


def requested_memory(gpu: str) -> MemoryRequest | None:
    """Returns the current request; None if there is none."""
    if not request_file(gpu).exists():
        return None
    with open_and_unlock(request_file(gpu)) as handle:
        if try_lock(handle, fcntl.LOCK_SH):
            return None
        answered = os.pread(handle, 2 * _DIGITS, 0)
    whole = len(answered) == 2 * _DIGITS and answered.isdigit()
    return MemoryRequest(int(answered[:_DIGITS]), int(answered[_DIGITS:])) if whole else None


def answer_memory_request(gpu: str) -> None:
    """Records this process as having freed all memory it can."""
    handle = os.open(request_file(gpu), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(handle, b".")
    finally:
        os.close(handle)


def wait_for_memory(gpu: str, needed: int, other_processes: int) -> bool:
    """Asks for so many bytes, and returns once so many others have answered; says whether they did in time."""
    with requesting_memory(gpu, needed) as answers:
        until = time.monotonic() + MAX_WAIT_SECONDS
        while answers() < other_processes and time.monotonic() < until:
            time.sleep(LEASE_POLL_SECONDS)
        return answers() >= other_processes
