"""Finds the descendants of a process in /proc, and ends them by stopping, then killing, for hosts
without pid namespaces.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path


def descendants(pid: int, *, spared: Collection[int] = ()) -> list[int]:
    """Returns all processes below `pid`, without `pid`; `spared` and the processes below them are left out."""
    pids: list[int] = []
    for child in _children(pid):
        if child not in spared:
            pids += [child, *descendants(child, spared=spared)]
    return pids


def end_descendants(*, spared: Collection[int] = (), seconds: float = 5.0) -> None:
    """Ends all descendants of the calling process, which must be a subreaper
    (PR_SET_CHILD_SUBREAPER) so that no orphan escapes.

    Processes are stopped until no new process appears: a stopped process cannot fork. Returns
    when all are dead and reaped, or after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stopped: set[int] = set()
        while (
            pids := set(descendants(os.getpid(), spared=spared))
        ) - stopped and time.monotonic() < deadline:
            _send(signal.SIGSTOP, pids - stopped)
            stopped |= pids
        if not pids:
            return
        _send(signal.SIGKILL, pids)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """Reads /proc/PID/task/*/children, which a kernel may lack (CONFIG_PROC_CHILDREN); then everybody's parent."""
    try:
        texts = [Path(task, "children").read_text() for task in os.scandir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return (
            _by_parent(pid)
            if not Path("/proc/self/task", str(os.getpid()), "children").exists()
            else []
        )
    return [int(child) for text in texts for child in text.split()]


def _by_parent(parent: int) -> list[int]:
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    pids.append(int(entry))
    return pids
