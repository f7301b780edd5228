"""Isolation layers of a candidate: which are requested, how each is entered, and which the host
supports.

Entered inside the forked process, before any of the candidate's text is read. A layer refused by
the host is reported with its reason, never skipped silently.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.session_priority import enter_session
from kernelwright.tools.sandbox.isolation import cgroup
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.readable_files import close_files
from kernelwright.tools.sandbox.isolation.seccomp_filter import refuse_system_calls
from kernelwright.tools.sandbox.limits import Limits, ProcessKind


@dataclass
class Layers:
    """Active isolation layers, and missing layers with the reason."""

    active: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def enter(self, name: str, action: Callable[[], object]) -> bool:
        """Tries a layer, notes the result, and returns whether the layer holds. Errors other than
        refusals by the system pass through.
        """
        try:
            action()
        except (OSError, ValueError, KeyError) as error:
            self.lack(name, error)
            return False
        self.active.append(name)
        return True

    def lack(self, name: str, error: Exception) -> None:
        """Notes that a layer is missing, and why."""
        self.missing.append(f"{name}: {getattr(error, 'strerror', None) or error}")

    def as_message(self) -> dict[str, list[str]]:
        """Returns both lists as JSON values."""
        return {"active": self.active, "missing": self.missing}


PROCESS_CEILING = "process ceiling"
OWN_SCRATCH = "bounded scratch folder"
MEMORY_GROUP, MEMORY_WATCH = "memory cgroup", "memory watch"
"""Names of the two layers which may bound the memory of all processes of a candidate together:
the kernel, or polling by the keeper (inside/usage_watch.py).
"""
OTHER_THREADS = 512
"""Allowance for threads which the same user starts elsewhere while a candidate lives:
RLIMIT_NPROC counts them together.
"""


def set_limits(kind: ProcessKind, limits: Limits, ceiling: bool) -> None:
    """Sets the limits of resources. ceiling: the pid namespace already bounds the number of
    processes, whatever else this user runs.
    """
    grown = _address_space() + limits.memory
    memory_limit = resource.RLIMIT_DATA if kind is ProcessKind.CUDA else resource.RLIMIT_AS
    resource_limits = {
        memory_limit: grown,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    if not ceiling:
        resource_limits[resource.RLIMIT_NPROC] = limits.processes + _own_processes() + OTHER_THREADS
    for name, value in resource_limits.items():
        _, hard = resource.getrlimit(name)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (bound, bound))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _own_processes() -> int:
    """Returns the number of living threads of this user, which RLIMIT_NPROC counts as well."""
    uid = os.getuid()
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(entry / "task"))
        except OSError:
            continue
    return count


def cap_processes(limits: Limits) -> None:
    """Sets the pid namespace's own limit on processes, which binds root as well, unlike
    RLIMIT_NPROC.

    Only for the first process of a namespace, and only if the limit belongs to the namespace
    (Linux 6.14 and later); earlier kernels have a single limit for the whole machine.
    """
    if os.getpid() != 1 or not kernel.pid_namespaces_have_ceilings():
        raise OSError(95, "needs Linux 6.14 and a pid namespace")
    Path("/proc/sys/kernel/pid_max").write_text(str(max(limits.processes, 301)))


def enter_namespaces(layers: Layers, *, own_user: bool) -> None:
    """Network, mounts, System V and POSIX message queues, host name; as an ordinary user inside a
    user namespace first.
    """
    if os.geteuid() != 0 and own_user:
        layers.enter("user namespace", kernel.enter_user_namespace)
    layers.enter("network namespace", lambda: kernel.unshare(kernel.NEWNET))
    if layers.enter("mount namespace", lambda: kernel.unshare(kernel.NEWNS)):
        layers.enter("private mounts", kernel.make_mounts_private)
    layers.enter("ipc namespace", lambda: kernel.unshare(kernel.NEWIPC | kernel.NEWUTS))


def open_session(layers: Layers, limits: Limits, *, own_mounts: bool, scratch: str = "") -> None:
    """Sets up the session of a candidate, in its first process.

    `scratch`: folder replaced by a bounded file system in memory, if any. own_mounts: whether
    this process has a mount namespace of its own, invisible to others; nothing is mounted
    elsewhere.
    """
    layers.enter("own session", enter_session)
    if not own_mounts:
        return
    if "pid namespace" in layers.active and layers.enter("own /proc", kernel.mount_proc):
        layers.enter(PROCESS_CEILING, lambda: cap_processes(limits))
        layers.enter("read-only /proc/sys", protect_proc)
    layers.enter("own /dev/shm", kernel.mount_own_shm)
    if scratch:
        layers.enter(OWN_SCRATCH, lambda: kernel.mount_scratch(scratch, limits.disk, limits.files))


def protect_proc() -> None:
    """Makes those parts of /proc read-only through which a process could change the machine."""
    for name in ("sys", "sysrq-trigger", "irq", "bus", "fs"):
        if os.path.exists(f"/proc/{name}"):
            kernel.make_read_only(f"/proc/{name}")


def enter_process_walls(
    layers: Layers,
    kind: ProcessKind,
    limits: Limits,
    close_all_files: Callable[[], object] | None,
    *,
    memory_files: bool,
) -> None:
    """Enters all layers set in the candidate's own process, in the order in which each is still
    possible.

    `memory_files`: whether memfd_create stays open.
    """
    layers.enter(
        "resource limits", lambda: set_limits(kind, limits, PROCESS_CEILING in layers.active)
    )
    layers.enter("no capabilities", kernel.drop_capabilities)
    layers.enter("no new privileges", kernel.no_new_privileges)
    if close_all_files is not None:
        layers.enter("landlock", close_all_files)
    sockets = kind is ProcessKind.CUDA
    layers.enter("seccomp", lambda: refuse_system_calls(memory_files=memory_files, sockets=sockets))


def available() -> list[tuple[str, bool, str]]:
    """Tries every layer in a child process: (layer, whether it holds, reason if not)."""
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as scratch:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _try_everything(writer, scratch)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            report = json.loads(pipe.read() or b'{"active": [], "missing": []}')
        os.waitpid(pid, 0)
    missing = [
        (name, False, reason)
        for name, _, reason in (text.partition(": ") for text in report["missing"])
    ]
    return [(name, True, "") for name in report["active"]] + missing


def _try_everything(writer: int, scratch: str) -> None:
    """Tries every layer in the forked child. Never returns."""
    layers = Layers()
    try:
        groups = cgroup.find_groups()
        layers.active += [MEMORY_GROUP] if groups.bound_memory else []
        layers.missing += [] if groups.bound_memory else [f"{MEMORY_GROUP}: {groups.missing}"]
        enter_namespaces(layers, own_user=True)
        layers.enter("pid namespace", lambda: kernel.unshare(kernel.NEWPID))
        if (pid := os.fork()) == 0:
            try:
                open_session(
                    layers, Limits(), own_mounts="private mounts" in layers.active, scratch=scratch
                )
                close = lambda: close_files(scratch, ProcessKind.INTERPRET)  # noqa: E731
                enter_process_walls(
                    layers, ProcessKind.INTERPRET, Limits(), close, memory_files=False
                )
            finally:
                os.write(writer, json.dumps(layers.as_message()).encode())
                os._exit(0)
        os.waitpid(pid, 0)
    finally:
        os._exit(0)
