"""Usage of a candidate's processes, polled by their keeper, because no limit of a single process
bounds it: the memory of all processes together, their number, and the size of the folder they
write, unless it is a file system of its own.

Between two polls a candidate may exceed its bound by the amount it can take in a tenth of a
second. Memory means anonymous memory, private and shared; files in memory are closed to
candidates (isolation/seccomp_filter.py), and /dev/shm is bounded by its own size.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from kernelwright.tools.sandbox.limits import Limits

TICK_SECONDS = 0.1
"""Seconds between two polls."""
MAX_MEASURING_SHARE = 0.02
"""Maximum share of the time spent measuring a folder."""
_PAGE = os.sysconf("SC_PAGESIZE")


class Bound(StrEnum):
    """Bound exceeded by a candidate."""

    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    FILES = "files"


class UsageWatch:
    """Usage of a candidate.

    `processes` lists the ids of all processes of the candidate; `folder`, if set, is measured
    too.
    """

    def __init__(
        self,
        limits: Limits,
        processes: Callable[[], list[int]],
        *,
        memory: bool = True,
        shared_memory: bool = True,
        folder: str | None = None,
    ) -> None:
        self._limits = limits
        self._processes = processes
        self._memory = memory
        self._shared = shared_memory
        self._folder = folder
        self._address_space = _statm(os.getpid())[0]
        self._next_walk = 0.0

    def exceeded(self) -> Bound | None:
        """Returns the first exceeded bound; None if all hold."""
        pids = self._processes()
        if len(pids) > self._limits.processes:
            return Bound.PROCESSES
        if (
            self._memory
            and self._at_most(pids) > self._limits.memory
            and _held(pids) > self._limits.memory
        ):
            return Bound.MEMORY
        return self._look_through_folder(pids) if self._folder else None

    def _at_most(self, pids: Iterable[int]) -> int:
        """Returns an upper bound of the processes' memory: cheap, and nearly always within the
        limit.
        """
        total = 0
        for pid in pids:
            size, resident, shared = _statm(pid)
            total += resident - shared
            if self._shared:
                total += max(size - self._address_space, 0)
        return total

    def _look_through_folder(self, pids: Iterable[int]) -> Bound | None:
        begun = time.monotonic()
        if begun < self._next_walk or self._folder is None:
            return None
        size, count = _folder_use(self._folder, self._limits)
        if size <= self._limits.disk:
            size += _deleted_but_open(pids, os.stat(self._folder).st_dev)
        now = time.monotonic()
        self._next_walk = now + (now - begun) / MAX_MEASURING_SHARE
        if count > self._limits.files:
            return Bound.FILES
        return Bound.DISK if size > self._limits.disk else None


def _statm(pid: int) -> tuple[int, int, int]:
    """Returns the bytes of address space, resident memory, and resident files and shared memory
    (proc_pid_statm(5)); zeros for an ended process.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            size, resident, shared = file.read(200).split()[:3]
    except (OSError, ValueError):
        return 0, 0, 0
    return int(size) * _PAGE, int(resident) * _PAGE, int(shared) * _PAGE


def _held(pids: Iterable[int]) -> int:
    """Returns the bytes of anonymous memory of all processes: shared pages are divided among
    them, shared mappings count once, in full.
    """
    private = 0
    mappings: dict[str, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    private += int(line.split()[1]) << 10
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if "/dev/zero" in line:
                    begin, _, end = line.split()[0].partition("-")
                    inode = line.split()[4]
                    mappings[inode] = max(mappings.get(inode, 0), int(end, 16) - int(begin, 16))
    return private + sum(mappings.values())


def _folder_use(folder: str, limits: Limits) -> tuple[int, int]:
    """Returns (bytes, entries) below the folder, up to the limits."""
    size, count, waiting = 0, 0, [folder]
    while waiting and count <= limits.files and size <= limits.disk:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > limits.files:
                    break
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return size, count


def _deleted_but_open(pids: Iterable[int], device: int) -> int:
    """Returns the bytes of files on the device which are deleted and still open."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    file = os.stat(f"/proc/{pid}/fd/{entry}")
                    if file.st_nlink == 0 and file.st_dev == device:
                        sizes[file.st_ino] = file.st_blocks * 512
    return sum(sizes.values())
