"""The candidate's own process: enters the isolation layers, waits for its job and runs the job."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable

from kernelwright.program_arguments import drop_program_arguments
from kernelwright.tools.sandbox.channel import Channel, ChannelClosed
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.layers import Layers, enter_process_walls
from kernelwright.tools.sandbox.isolation.readable_files import make_ruleset
from kernelwright.tools.sandbox.limits import ProcessKind
from kernelwright.tools.sandbox.request import ProcessSettings

CHANNEL, RULESET = 3, 4
"""The candidate's channel is always the first of these descriptors; the other is closed when its walls stand."""


def run(
    kind: ProcessKind,
    layers: Layers,
    request: ProcessSettings,
    channel_fd: int,
    output_fd: int,
    common: list[tuple[int, int]],
) -> None:
    """Runs the job, then ends the process. Never returns."""
    code = 70
    try:
        kernel.die_with_parent()
        ruleset = _make_ruleset(layers, kind, request, common)
        channel = _settle_descriptors(channel_fd, output_fd, ruleset)
        drop_program_arguments()
        os.environ.update(request.environment)
        os.chdir(request.scratch)
        tempfile.tempdir = None  # the zygote's own was looked up while it imported torch
        if kind is ProcessKind.CUDA:
            os.environ["CUDA_VISIBLE_DEVICES"] = request.gpu
        close_all_files: Callable[[], object] | None = None
        if ruleset is not None:
            close_all_files = lambda: kernel.enter_ruleset(RULESET)  # noqa: E731
        enter_process_walls(
            layers, kind, request.limits, close_all_files, memory_files=request.memory_files
        )
        if kind is ProcessKind.CUDA:
            _hold_context()
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


def _make_ruleset(
    layers: Layers, kind: ProcessKind, request: ProcessSettings, common: list[tuple[int, int]]
) -> int | None:
    try:
        return make_ruleset(common, request.scratch, kind)
    except OSError as error:
        layers.lack("landlock", error)
        return None


def _settle_descriptors(channel_fd: int, output_fd: int, ruleset: int | None) -> Channel:
    """Closes all descriptors except standard input (empty), output, errors, the channel, and the
    ruleset until used.
    """
    high = max(channel_fd, output_fd, ruleset or 0, 64) + 1
    os.dup2(channel_fd, high, inheritable=False)
    os.dup2(output_fd, high + 1, inheritable=False)
    if ruleset is not None:
        os.dup2(ruleset, high + 2, inheritable=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(high + 1, 1)
    os.dup2(high + 1, 2)
    os.dup2(high, CHANNEL, inheritable=False)
    if ruleset is not None:
        os.dup2(high + 2, RULESET, inheritable=False)
    os.closerange(RULESET + (ruleset is not None), 1 << 16)
    return Channel(socket.socket(fileno=CHANNEL))


def _hold_context() -> None:
    """Creates a CUDA context, and loads the libraries of a first kernel."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
