"""First process of a walled judge: starts the judge, reaps orphans, and ends every process at an exceeded bound.

The kernel ends every process of a pid namespace together with the first process, and ignores signals to the first
process from inside. No process started by a reference outlives a bound. Without a pid namespace all descendants are
stopped and then killed (tools/sandbox/isolation/descendants.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kernelwright.agent.judging.walls.bounds import EXIT_CODES, FULL_SHARE, JudgeBounds
from kernelwright.tools.sandbox.inside.usage_watch import Bound, UsageWatch
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.descendants import descendants, end_descendants
from kernelwright.tools.sandbox.limits import Limits

USAGE_CHECK_SECONDS = 0.1
"""Seconds between two checks of the judge's resource use."""
PRIORITY = -10
"""Niceness of the watching process, which competes with up to hundreds of processes of a reference.
"""
PID_MAX = Path("/proc/sys/kernel/pid_max")


def be_first_process(start_judge: Callable[[], NoReturn], bounds: JudgeBounds) -> NoReturn:
    """Starts the judge as first process of the pid namespace, and ends with the judge's exit code.

    start_judge: called in the judge's process. Raises OSError if /proc cannot be mounted.
    """
    kernel.die_with_parent()
    kernel.mount_proc()
    # The CUDA driver names its files there by process id, which is the same in every namespace.
    kernel.mount_own_shm()
    if kernel.pid_namespaces_have_ceilings():
        with contextlib.suppress(OSError):
            PID_MAX.write_text(str(bounds.threads))
    os._exit(_supervise(start_judge, bounds, _processes_of_namespace))


def be_subreaper(start_judge: Callable[[], NoReturn], bounds: JudgeBounds) -> NoReturn:
    """Starts the judge without namespaces, and ends with its exit code after all its descendants."""
    kernel.become_subreaper()
    exit_code = _supervise(start_judge, bounds, lambda: descendants(os.getpid()))
    end_descendants()
    os._exit(exit_code)


def _supervise(
    start_judge: Callable[[], NoReturn], bounds: JudgeBounds, processes: Callable[[], list[int]]
) -> int:
    """Returns the judge's exit code (128 and the signal, if any), or the exit code of an exceeded bound."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    if (judge := os.fork()) == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        start_judge()
    # Else a reference of the server's user could trace this process.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    with contextlib.suppress(PermissionError):  # only root may raise the priority
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    limits = replace(Limits(), memory=bounds.memory, processes=bounds.processes)
    watch = UsageWatch(limits, processes, shared_memory=False)
    limits_when_scarce = replace(limits, memory=bounds.memory_when_scarce)
    watch_when_scarce = UsageWatch(limits_when_scarce, processes, shared_memory=False)
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, USAGE_CHECK_SECONDS)
        if (exit_code := _exit_code(judge)) is not None:
            return exit_code
        is_scarce = _available_memory() < bounds.scarce_memory
        watch_now = watch_when_scarce if is_scarce else watch
        if (bound := _exceeded(watch_now, bounds, processes)) is not None:
            return EXIT_CODES[bound]


def _exit_code(judge: int) -> int | None:
    """Reaps dead processes. Returns the judge's exit code if the judge is among them."""
    exit_code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == judge:
                exit_code = as_exit_code(ended[1])
    return exit_code


def as_exit_code(status: int) -> int:
    """Returns the exit code of a wait status, or 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _exceeded(
    watch: UsageWatch, bounds: JudgeBounds, processes: Callable[[], list[int]]
) -> Bound | None:
    try:
        if (bound := watch.exceeded()) is not None:
            return bound
        pids = processes()
        if (
            len(pids) > bounds.own_processes
            and _count_in_this_namespace(pids) > bounds.own_processes
        ):
            return Bound.PROCESSES
        disk = os.statvfs(tempfile.gettempdir())
    except OSError:  # a process that was looked at went away meanwhile
        return None
    is_full = disk.f_bfree < (1.0 - FULL_SHARE) * disk.f_blocks
    return Bound.DISK if is_full and _has_own_temporary() else None


def _available_memory() -> int:
    """Returns the available memory in bytes, without swap (proc_meminfo(5))."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def _has_own_temporary() -> bool:
    """Whether /tmp is the judge's own file system."""
    temporary = tempfile.gettempdir()
    return os.stat(temporary).st_dev != os.stat(os.path.dirname(temporary)).st_dev


def _processes_of_namespace() -> list[int]:
    """Returns the process ids in /proc but this one's."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _count_in_this_namespace(pids: list[int]) -> int:
    """Returns the number of processes in this pid namespace itself, without those in sandboxes of
    candidates.
    """
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("NSpid:"):
                    count += len(line.split()) == 2
    return count
