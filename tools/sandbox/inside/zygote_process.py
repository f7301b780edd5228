"""Warm process: torch and triton imported, no CUDA context, no candidate.

Forks a sandboxed process for each candidate.

    python -m kernelwright.tools.sandbox.inside.zygote_process KIND CHANNEL_FD [MODULE:FUNCTION]        (started by
    tools.sandbox.zygote, never by hand)

Each request brings three descriptors: the candidate's channel, the pipe for its output, and the
pipe which reports its end. The zygote holds the last descriptor while any process of the
candidate lives. A closed channel means that the owner is gone: the zygote then kills its
candidates, removes its folder and exits.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from kernelwright.session_priority import session_keeps_priority_of
from kernelwright.tools.sandbox import folders
from kernelwright.tools.sandbox.channel import Channel, ChannelClosed
from kernelwright.tools.sandbox.inside import keeper
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.descendants import end_descendants
from kernelwright.tools.sandbox.isolation.layers import Layers, enter_namespaces
from kernelwright.tools.sandbox.isolation.readable_files import open_common_paths
from kernelwright.tools.sandbox.limits import ProcessKind
from kernelwright.tools.sandbox.request import ProcessSettings

FORKS_BEFORE_HUGE_PAGES = 8
"""Number of forks after which memory is gathered into huge pages, which does not pay off for a
single verdict.
"""
FOLDER_SECONDS = 5.0
"""Seconds for removing the folder; the owner waits twice as long."""
THREADS_END_SECONDS = 5.0
LIBRARY_THREADS_END_SECONDS = 0.5


def main() -> None:
    """Sets up the isolation layers, imports the libraries of candidates, and forks a candidate
    for each request.
    """
    kind, channel = ProcessKind(sys.argv[1]), Channel(socket.socket(fileno=int(sys.argv[2])))
    layers = Layers()
    session_keeps_priority_of(os.getppid())
    with channel.die_when_closed(_remove_folder):
        if os.geteuid() == 0 or kind is not ProcessKind.CUDA:
            enter_namespaces(layers, own_user=True)
        else:
            layers.missing.append(
                "namespaces: CUDA IPC does not cross user namespaces, and this is an ordinary user's"
            )
        warm_up(kind, sys.argv[3] if len(sys.argv) > 3 else "")
        gc.collect()
        gc.freeze()  # a collection in a fork would write to, and so copy, every page with an object on it
    kernel.become_subreaper()
    try:
        channel.send({"warm": True})
    except ChannelClosed:
        _remove_folder()
        return
    ForkServer(kind, layers, channel).serve()


def _remove_folder() -> None:
    """Removes the folder of this process; no other process does once the owner is gone.

    Includes files written by a dying owner or candidate, which may take a while on a busy
    machine.
    """
    folders.remove(Path(os.getcwd()), FOLDER_SECONDS)


def warm_up(kind: ProcessKind, hook: str = "") -> None:
    """Imports, and calls the owner's hook: afterwards no thread may be running and no CUDA
    context may exist, for the process is forked.
    """
    import torch

    torch.set_num_threads(1)
    for name in (
        "numpy",
        "torch.utils._python_dispatch",
        "torch.overrides",
        "triton",
        "triton.language",
        "kernelwright.tools.wire",
        "kernelwright.tools.report",
    ):
        importlib.import_module(name)
    for name in _PRELOADED[kind]:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        # Triton's own specialisation of arguments imports it, a quarter of a second, at a process's first launch.
        importlib.import_module("triton.experimental.gluon")
    if kind is not ProcessKind.INTERPRET:
        _hash_triton()
    if hook:
        _call_hook(hook)


_PRELOADED = {
    ProcessKind.COMPILE: ("triton.compiler", "triton.backends.compiler"),
    ProcessKind.INTERPRET: ("triton.runtime.interpreter",),
    ProcessKind.CUDA: (
        "triton.compiler",
        "triton.compiler.code_generator",
        "triton.backends.nvidia.compiler",
        "torch.autograd.profiler",
    ),
}


def _hash_triton() -> None:
    """Hashes Triton's own files, which each process would do before its first compilation (half a second of work)."""
    key = getattr(importlib.import_module("triton.runtime.cache"), "triton_key", None)
    if key is not None:
        key()


def _call_hook(hook: str) -> None:
    """Calls `package.module:function()`.

    Raises RuntimeError if a Python thread is left running: forks would inherit its locks without
    the thread. Idle threads of libraries (torch's, LLVM's) hold no lock between two calls, and
    are waited for only a moment.
    """
    native, before = _native_threads(), threading.active_count()
    module, _, name = hook.partition(":")
    getattr(importlib.import_module(module), name)()
    begun = time.monotonic()
    while threading.active_count() > before and time.monotonic() < begun + THREADS_END_SECONDS:
        time.sleep(0.01)
    if threading.active_count() > before:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise RuntimeError(
            f"{hook} left threads running ({names}): a zygote forks, and must have none"
        )
    while _native_threads() > native and time.monotonic() < begun + LIBRARY_THREADS_END_SECONDS:
        time.sleep(0.01)


def _native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


class ForkServer:
    """Forks candidates' processes on request, and buries them."""

    def __init__(self, kind: ProcessKind, layers: Layers, channel: Channel) -> None:
        self._kind = kind
        self._layers = layers
        self._channel = channel
        self._common = open_common_paths(kind)
        self._living: dict[int, int] = {}
        """The first process of each candidate, and the pipe on which its end is told."""
        self._forks = 0
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Serves until the owner is gone. Never returns."""
        waiting = select.poll()  # unlike `select`, for descriptors of any number
        waiting.register(self._channel.fileno(), select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._channel.fileno() in ready:
                try:
                    request = ProcessSettings.from_message(self._channel.receive())
                except ChannelClosed:
                    self._leave()
                self._fork(request, self._channel.take_descriptors())

    def _fork(self, request: ProcessSettings, descriptors: list[int]) -> None:
        self._forks += 1
        if self._forks == FORKS_BEFORE_HUGE_PAGES:
            kernel.gather_memory()
        between = _native_threads() > 1
        forked = (
            _fork_by_steps(request, descriptors) if between else _fork_apart(request.pid_namespace)
        )
        if forked.pid == 0:
            self._layers.active += (
                ["pid namespace"] if request.pid_namespace and not forked.lacks else []
            )
            self._layers.missing += forked.lacks
            self._channel.close()
            signal.set_wakeup_fd(-1)
            for (
                status
            ) in self._living.values():  # whose end is told to whoever holds the last of them
                os.close(status)
            keeper.keep(
                self._kind,
                self._layers,
                request,
                descriptors,
                self._common,
                own_mounts=forked.own_mounts,
            )
        for descriptor in descriptors[:2]:
            os.close(descriptor)
        self._living[forked.pid] = descriptors[2]
        if not between:
            _tell(descriptors[2], f"pid {forked.pid}")

    def _reap(self) -> None:
        """Reaps first processes that ended.

        The kernel reaps the first process of a pid namespace last; without namespace, orphans of
        its candidate became children of this process.
        """
        for pid in _reaped():
            status = self._living.pop(pid, None)
            if status is not None:
                end_descendants(spared=self._living)
                os.close(status)

    def _leave(self) -> None:
        end_descendants()
        _remove_folder()
        os._exit(0)


class Forked(NamedTuple):
    """The result of a fork on the parent's side."""

    pid: int
    """Process id; 0 in the child."""
    lacks: list[str]
    own_mounts: bool
    """Whether the child has mounts of its own. Of interest to the child."""


def _fork_apart(pid_namespace: bool) -> Forked:
    """Forks into as many namespaces as this host allows. Only for a process with a single thread."""
    lacks: list[str] = []
    flag_sets = [kernel.NEWPID | kernel.NEWNS, kernel.NEWNS] if pid_namespace else [kernel.NEWNS]
    for flags in flag_sets:
        try:
            return Forked(kernel.fork_into(flags), lacks, True)
        except (OSError, KeyError) as error:
            if flags & kernel.NEWPID:
                lacks.append(f"pid namespace: {getattr(error, 'strerror', None) or error}")
    return Forked(os.fork(), lacks, False)


def _fork_by_steps(request: ProcessSettings, descriptors: list[int]) -> Forked:
    """Forks into namespaces although a library keeps threads: its fork handlers (OpenBLAS ends
    its threads) must run in the process with the threads.

    Costs an intermediate process between this process and the first process of the pid namespace.
    The child reports its process id.
    """
    if pid := os.fork():
        return Forked(pid, [], False)
    lacks: list[str] = []
    if request.pid_namespace:
        try:
            kernel.unshare(kernel.NEWPID | kernel.NEWNS)
        except OSError as error:
            lacks.append(f"pid namespace: {error.strerror}")
        else:
            if (first := os.fork()) == 0:
                return Forked(0, [], True)
            _stand_between(first, descriptors)
    _tell(descriptors[2], f"pid {os.getpid()}")
    try:
        kernel.unshare(kernel.NEWNS)
    except OSError:
        return Forked(0, lacks, False)
    return Forked(0, lacks, True)


def _stand_between(first: int, descriptors: list[int]) -> None:
    """Holds the pipe which reports the end until the namespace's first process, and with it all
    others, is reaped. Never returns.
    """
    kernel.die_with_parent()
    signal.set_wakeup_fd(-1)
    _tell(descriptors[2], f"pid {first}")
    os.closerange(3, descriptors[2])
    os.closerange(descriptors[2] + 1, 1 << 16)
    os.waitpid(first, 0)
    os._exit(0)


def _reaped() -> list[int]:
    pids = []
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            pids.append(pid)
    return pids


def _tell(descriptor: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, f"{text}\n".encode())


if __name__ == "__main__":
    main()
