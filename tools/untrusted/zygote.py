"""The warm process: torch and triton imported, no CUDA context, no candidate. It forks one walled process for each candidate.

    python -m tools.untrusted.zygote KIND CHANNEL_FD        (started by tools.sandbox.zygote, never by hand)

Each request brings three descriptors: the candidate's channel, the pipe for what it prints, and the pipe on which its keeper tells how it ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any

from tools.sandbox import kernel
from tools.sandbox.channel import Channel, ChannelClosed
from tools.sandbox.isolation import Kind, Layers, Limits, enter_namespaces, enter_process_walls, open_session
from tools.untrusted import launchers, symbols

CHANNEL = 3
"""The candidate's channel is always this descriptor."""


def main() -> None:
    kind, channel = Kind(sys.argv[1]), Channel(socket.socket(fileno=int(sys.argv[2])))
    layers = Layers()
    with channel.or_die():
        if os.geteuid() == 0 or kind is not Kind.CUDA:
            enter_namespaces(layers, own_user=True)
        else:
            layers.missing.append("namespaces: CUDA IPC does not cross user namespaces, and this is an ordinary user's")
        warm_up(kind)
    channel.send({"warm": True})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            request = channel.receive()
        except ChannelClosed:
            os._exit(0)
        fds = channel.take_descriptors()
        if os.fork() == 0:
            channel.close()
            keep(kind, layers, request, fds)
        for fd in fds:
            os.close(fd)


def warm_up(kind: Kind) -> None:
    """Imports and nothing else: no thread may be running and no CUDA context may exist when it forks."""
    import torch

    torch.set_num_threads(1)
    for name in (
        "numpy",
        "torch.utils._python_dispatch",
        "torch.overrides",
        "triton",
        "triton.language",
        "tools.wire",
        "tools.results",
    ):
        importlib.import_module(name)
    preload = {
        Kind.COMPILE: ("triton.compiler", "triton.backends.compiler", "tools.untrusted.offline"),
        Kind.INTERPRET: ("triton.runtime.interpreter", "tools.untrusted.serve"),
        Kind.CUDA: (
            "triton.compiler",
            "triton.compiler.code_generator",
            "triton.backends.nvidia.compiler",
            "torch.autograd.profiler",
            "tools.untrusted.serve",
        ),
    }[kind]
    for name in preload:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        # Triton's own specialisation of arguments imports it, a quarter of a second, at a process's first launch.
        importlib.import_module("triton.experimental.gluon")
    if kind is not Kind.INTERPRET:
        symbols.warm_triton()
    if kind is Kind.COMPILE:
        launchers.look_for_the_library()


def keep(kind: Kind, layers: Layers, request: dict[str, Any], fds: list[int]) -> None:
    """The keeper: opens a pid namespace, forks its first process and waits for it. Never returns.

    It holds the status pipe to its end. The first process closes its own as soon as it dies; it is waited for until everything in the namespace is dead
    and what that held, of a GPU's memory too, is free.
    """
    status_fd = fds[2]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.die_with_parent()
    if request.get("pid_namespace", True):
        layers.enter("pid namespace", lambda: kernel.unshare(kernel.NEWPID | kernel.NEWNS))
    if (pid := os.fork()) == 0:
        first(kind, layers, request, fds)
    os.write(status_fd, f"pid {pid}\n".encode())
    for fd in fds[:2]:
        os.close(fd)
    os.waitpid(pid, 0)
    os._exit(0)


def first(kind: Kind, layers: Layers, request: dict[str, Any], fds: list[int]) -> None:
    """The namespace's first process: forks the candidate, collects orphans, tells how the candidate ended; with it all the rest dies. Never returns.

    The candidate is not the first process itself, for that one is deaf to its own signals (abort would not end it).
    """
    channel_fd, output_fd, status_fd = fds
    kernel.die_with_parent()
    open_session(layers, Limits(**request["limits"]))
    if (pid := os.fork()) == 0:
        kernel.die_with_parent()
        os.close(status_fd)
        run(kind, layers, request, channel_fd, output_fd)
    os.close(channel_fd)
    os.close(output_fd)
    while True:
        ended, status = os.wait()
        if ended == pid:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            os.write(status_fd, f"{how}\n".encode())
            os._exit(0)


def run(kind: Kind, layers: Layers, request: dict[str, Any], channel_fd: int, output_fd: int) -> None:
    """The candidate's process, until it ends. Never returns."""
    code = 70
    try:
        channel = settle_descriptors(channel_fd, output_fd)
        os.environ.update(request["environment"])
        os.chdir(request["scratch"])
        tempfile.tempdir = None  # the zygote's own was looked up while it imported torch
        if kind is Kind.CUDA:
            os.environ["CUDA_VISIBLE_DEVICES"] = request["gpu"]
        enter_process_walls(layers, kind, Limits(**request["limits"]), request["scratch"])
        if kind is Kind.CUDA:
            hold_context()
        channel.send({"ready": layers.as_message()})
        job = channel.receive()
        module, _, name = job["entry"].partition(":")
        getattr(importlib.import_module(module), name)(channel, job["payload"])
        code = 0
    except ChannelClosed:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def settle_descriptors(channel_fd: int, output_fd: int) -> Channel:
    """Nothing is open but standard input (empty), output, errors and the channel."""
    high = max(channel_fd, output_fd, 64) + 1
    os.dup2(channel_fd, high, inheritable=False)
    os.dup2(output_fd, high + 1, inheritable=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(high + 1, 1)
    os.dup2(high + 1, 2)
    os.dup2(high, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, high + 2)
    os.closerange(high + 2, 1024)
    return Channel(socket.socket(fileno=CHANNEL))


def hold_context() -> None:
    """A CUDA context, the libraries that a first kernel would load, CUPTI, and Triton's own modules."""
    import torch

    from tools.untrusted import cuda_clock, warm_kernel

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    cuda_clock.warm_up()
    warm_kernel.launch()


if __name__ == "__main__":
    main()
