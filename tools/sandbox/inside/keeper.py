"""First process of a candidate: opens the candidate's namespaces, forks the candidate, watches
its resource usage, reports its end, and kills all remaining processes.

The candidate is not the first process itself, because the first process of a pid namespace
ignores its own signals (abort would not end it).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable

from kernelwright.tools.sandbox.inside import candidate
from kernelwright.tools.sandbox.inside.usage_watch import TICK_SECONDS, Bound, UsageWatch
from kernelwright.tools.sandbox.isolation import cgroup
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.descendants import descendants, end_descendants
from kernelwright.tools.sandbox.isolation.layers import (
    MEMORY_GROUP,
    MEMORY_WATCH,
    OWN_SCRATCH,
    Layers,
    open_session,
)
from kernelwright.tools.sandbox.limits import ProcessKind
from kernelwright.tools.sandbox.request import ProcessSettings

CUDA_TICK_SECONDS = 0.5
"""Seconds between two polls of a process which may be timed."""
MAX_HANDED_OUT_BYTES = 64 << 10
"""Maximum number of bytes of each file copied out of a private folder."""
_AWAITED = (signal.SIGCHLD, signal.SIGTERM)


def keep(
    kind: ProcessKind,
    layers: Layers,
    request: ProcessSettings,
    descriptors: list[int],
    common: list[tuple[int, int]],
    *,
    own_mounts: bool,
) -> None:
    """Keeps a candidate, and never returns.

    descriptors: the candidate's channel, its output, and the pipe which reports its end.
    """
    channel_fd, output_fd, status_fd = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    has_own_namespaces = "pid namespace" in layers.active
    kernel.die_with_parent(signal.SIGKILL if has_own_namespaces else signal.SIGTERM)
    kernel.become_subreaper()
    if request.groups:
        layers.enter(MEMORY_GROUP, lambda: cgroup.enter_groups(list(request.groups)))
    outside = os.open(request.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    open_session(
        layers,
        request.limits,
        own_mounts=own_mounts,
        scratch=request.scratch * request.private_scratch,
    )
    if MEMORY_GROUP not in layers.active:
        layers.active.append(MEMORY_WATCH)
    if (pid := os.fork()) == 0:
        os.close(status_fd)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        candidate.run(kind, layers, request, channel_fd, output_fd, common)
    os.close(channel_fd)
    os.close(output_fd)
    how = _wait(
        pid,
        _watch(kind, layers, request),
        CUDA_TICK_SECONDS if kind is ProcessKind.CUDA else TICK_SECONDS,
    )
    if OWN_SCRATCH in layers.active:
        for name in request.handed_out:
            with contextlib.suppress(OSError):
                _hand_out(request.scratch, name, outside)
    with contextlib.suppress(OSError):
        os.write(status_fd, f"{how}\n".encode())
    if not has_own_namespaces:
        end_descendants()
    os._exit(0)


def _hand_out(scratch: str, name: str, outside: int) -> None:
    """Copies the beginning of a file from the private folder to the folder below; skips anything
    but regular files. Raises OSError.
    """
    inside = os.open(
        os.path.join(scratch, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )
    try:
        if stat.S_ISREG(os.fstat(inside).st_mode):
            copy = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=outside
            )
            os.write(copy, os.read(inside, MAX_HANDED_OUT_BYTES))
            os.close(copy)
    finally:
        os.close(inside)


def _every_process() -> list[int]:
    """Returns the process ids in /proc, without the own process in its name space."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _watch(kind: ProcessKind, layers: Layers, request: ProcessSettings) -> UsageWatch:
    processes: Callable[[], list[int]] = lambda: descendants(os.getpid())  # noqa: E731
    if "own /proc" in layers.active:
        processes = _every_process
    return UsageWatch(
        request.limits,
        processes,
        memory=MEMORY_GROUP not in layers.active,
        shared_memory=kind is not ProcessKind.CUDA,
        folder=None if OWN_SCRATCH in layers.active else request.scratch,
    )


def _wait(pid: int, watch: UsageWatch, tick: float) -> str:
    """Waits until the candidate ends, goes over a bound, or is to end: "exit 0", "signal 9",
    "limit memory", "signal 15".
    """
    spent = 0.0
    while True:
        woken = signal.sigtimedwait(_AWAITED, max(tick, spent))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            return f"signal {int(signal.SIGTERM)}"
        if (how := _ended(pid)) is not None:
            return how
        begun = time.monotonic()
        if (bound := _exceeded(watch)) is not None:
            return f"limit {bound}"
        spent = time.monotonic() - begun


def _ended(pid: int) -> str | None:
    """Reaps dead processes; returns how the candidate ended, if dead."""
    how = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == pid:
                status = ended[1]
                how = (
                    f"signal {os.WTERMSIG(status)}"
                    if os.WIFSIGNALED(status)
                    else f"exit {os.WEXITSTATUS(status)}"
                )
    return how


def _exceeded(watch: UsageWatch) -> Bound | None:
    try:
        return watch.exceeded()
    except OSError:  # what it looked at went away meanwhile
        return None
