"""Who is at work on a GPU, among all processes of this machine: several may check answers side by
side, and whoever times is alone. Locks on two files named after the GPU, freed by the kernel when
their holder dies.

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

LEASE_POLL_SECONDS = 0.002
FILE_MODE = 0o666
"""Mode of the files: processes of other users measure on the same GPU."""


def lock_file(gpu: str) -> Path:
    """Returns the path of the GPU's lock file. gpu: its UUID, or another name common to all
    processes of this machine.
    """
    safe = "".join(c if c.isalnum() or c == "-" else "_" for c in gpu)
    return Path(tempfile.gettempdir(), f"kernelwright-{safe}.lock")


def entrance_file(lock: Path) -> Path:
    """Held for the moment in which somebody comes in, and for as long as he who wants to be alone
    waits: nobody overtakes him.
    """
    return lock.with_name(f"{lock.name}.door")


def timing_file(gpu: str) -> Path:
    """Returns the second lock file, shared by processes while they compute on a shared GPU, and
    taken exclusively for timing: the others keep their memory meanwhile, and wait.
    """
    return lock_file(gpu).with_suffix(".timing")


class Lease:
    """Held turn on a GPU."""

    def __init__(self, gpu: str, seconds: float, turn: int, timing: int | None) -> None:
        """Stores the descriptors of the locks.

        seconds: maximum waiting time. turn: descriptor of the lock on the GPU. timing: descriptor
        of the shared timing lock; None: no other process has the GPU.
        """
        self._gpu = gpu
        self._seconds = seconds
        self._turn = turn
        self._timing = timing

    def take_whole(self) -> None:
        """From here on nobody else has a turn. This process must have nothing under way on the
        GPU; the others end theirs first. Raises InfrastructureError as `gpu_lease`.
        """
        if self._timing is None:
            return
        fcntl.flock(self._timing, fcntl.LOCK_UN)
        fcntl.flock(
            self._turn, fcntl.LOCK_UN
        )  # two who share and would have it whole would wait for each other
        self._timing = None
        until = time.monotonic() + self._seconds
        with open_and_unlock(entrance_file(lock_file(self._gpu))) as door:
            _wait_for_lock(door, fcntl.LOCK_EX, until, self._gpu, self._seconds)
            _wait_for_lock(self._turn, fcntl.LOCK_EX, until, self._gpu, self._seconds)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the GPU exclusively while the block runs; sharing processes keep their memory,
        and continue afterwards. Raises InfrastructureError as `gpu_lease`.
        """
        if self._timing is None:
            yield
            return
        fcntl.flock(
            self._timing, fcntl.LOCK_UN
        )  # two who share and would be alone would wait for each other
        self.wait_to_compute(fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._timing, fcntl.LOCK_UN)
            self.wait_to_compute(fcntl.LOCK_SH)

    def give_way(self) -> None:
        """Lets whoever waits to be alone go first; this process must have nothing under way on
        the GPU. Raises InfrastructureError as `gpu_lease`.
        """
        if self._timing is None:
            return
        with open_and_unlock(entrance_file(timing_file(self._gpu))) as door:
            if try_lock(door, fcntl.LOCK_EX):
                return
        fcntl.flock(self._timing, fcntl.LOCK_UN)
        self.wait_to_compute(fcntl.LOCK_SH)

    def wait_to_compute(self, kind: int) -> None:
        """Waits until this process may compute on the GPU beside others (`fcntl.LOCK_SH`), or
        alone (`LOCK_EX`). Raises InfrastructureError.
        """
        assert self._timing is not None
        until = time.monotonic() + self._seconds
        with open_and_unlock(entrance_file(timing_file(self._gpu))) as door:
            _wait_for_lock(door, fcntl.LOCK_EX, until, self._gpu, self._seconds)
            _wait_for_lock(self._timing, kind, until, self._gpu, self._seconds)


@contextlib.contextmanager
def gpu_lease(
    gpu: str,
    seconds: float = 600.0,
    waiting: Callable[[str], None] = lambda _: None,
    *,
    shared: bool = False,
) -> Iterator[Lease]:
    """Leases a GPU until the block ends. Raises InfrastructureError if another process keeps the
    GPU for more than `seconds`.

    shared: beside other sharing processes, with `Lease.alone` for a while, or `Lease.take_whole`;
    False: exclusively.
    """
    until = time.monotonic() + seconds
    with (
        open_and_unlock(entrance_file(lock_file(gpu))) as door,
        open_and_unlock(lock_file(gpu)) as lock,
    ):
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if not (try_lock(door, fcntl.LOCK_EX) and try_lock(lock, kind)):
            waiting("waiting for the GPU: another process is measuring on it")
            _wait_for_lock(door, fcntl.LOCK_EX, until, gpu, seconds)
            _wait_for_lock(lock, kind, until, gpu, seconds)
        fcntl.flock(door, fcntl.LOCK_UN)
        if not shared:
            yield Lease(gpu, seconds, lock, None)
            return
        with open_and_unlock(timing_file(gpu)) as timing:
            lease = Lease(gpu, seconds, lock, timing)
            lease.wait_to_compute(fcntl.LOCK_SH)
            yield lease


@contextlib.contextmanager
def open_and_unlock(path: Path) -> Iterator[int]:
    """Opens the file, created if missing, and releases its locks at the end.

    Closing alone would not release them: a forked child has the descriptor too, and would keep
    the lock.
    """
    handle = _open(path)
    try:
        yield handle
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(
        FileNotFoundError
    ):  # O_CREAT on another user's file is refused in a folder for all
        return os.open(path, flags)
    handle = os.open(path, flags | os.O_CREAT, FILE_MODE)
    with contextlib.suppress(PermissionError):  # made by another user in between
        os.fchmod(handle, FILE_MODE)
    return handle


def try_lock(handle: int, kind: int) -> bool:
    """Tries to take a lock (`fcntl.LOCK_EX` or `LOCK_SH`) on an open file; returns whether this
    descriptor holds the lock.
    """
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
        time.sleep(LEASE_POLL_SECONDS)
