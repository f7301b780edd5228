"""Models of hundreds of tensors, and hundreds of problems one after the other: descriptors are few, and they all
arrive.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys

import pytest
import torch

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.shared_tensors import (
    MAX_BLOCKS_KEPT_ON_CPU,
    SHARED_MARGIN_BYTES,
    Buffers,
)
from kernelwright.tools.report import InfrastructureError
from kernelwright.tools.sandbox.channel import MAX_DESCRIPTORS, Channel

HEAD = """
import torch
import torch.nn as nn
"""
MODEL = """
class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.offsets = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(count)])

    def forward(self, x, *others):
        offset = torch.stack(list(self.offsets)).sum(0) + 1000 * self.offsets[-1]
        return torch.relu(x + offset + torch.stack(others).sum(0))
"""
INPUTS = """
def get_inputs():
    return [torch.randn(5, 8), *(torch.randn(8) for _ in range(160))]


def get_init_inputs():
    return [320]
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def work(x_ptr, offset_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n) + tl.load(offset_ptr + at % 8)
    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < n)
"""
FORWARD = """
        offsets = list(self.offsets)
        offset = torch.stack(offsets).sum(0) + 1000 * offsets[-1] + torch.stack(others).sum(0)
        out = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 64),)](x, offset, out, x.numel(), BLOCK=64)
        return out
"""
CANDIDATE = (
    HEAD
    + KERNEL
    + MODEL.split("        offset =")[0].replace("class Model(", "class ModelNew(")
    + FORWARD
)
WRONG = CANDIDATE.replace("list(self.offsets)", "list(self.offsets)[:319]")
"""Without the last weight, which is most of the output: no draw makes that a matter of rounding."""
PLAIN = (
    "import torch, torch.nn as nn\nN = %d\nclass Model(nn.Module):\n    def forward(self, x):\n        return "
    "torch.relu(x)\ndef get_inputs():\n    return "
    "[torch.randn(N, 600)]\ndef get_init_inputs():\n    return "
    "[]\n"
)
RELU = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.mark.slow
def test_a_model_of_320_weights_and_160_inputs_is_judged(evaluator):
    assert 160 < MAX_DESCRIPTORS < 320, "more tensors than descriptors fit into one message"
    problem = Problem(name="many", source=HEAD + MODEL + INPUTS)
    options = Options(
        profile=False,
        torch_compile=False,
        own_work="report",
        seed=6,
        sizes=1,
        compile_seconds=400,
        seconds=400,
    )
    right, wrong = (evaluator.evaluate(problem, source, options) for source in (CANDIDATE, WRONG))
    assert right.correct, right.failure
    assert wrong.failure is not None
    assert wrong.failure.fault == "mismatch"


@pytest.mark.slow
def test_twelve_problems_are_judged_with_a_hundred_and_fifty_open_files():
    """Each problem's sizes were kept in memory of their own, with two descriptors each: where a process may have
    1,024, the judge ended after some eighty problems: twelve descriptors each, and here 144.
    """
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))\n"
        "from tests.tools.references.test_many_tensors import PLAIN, RELU, Options, Problem\n"
        "from kernelwright.tools.evaluation.pipeline import Evaluator\n"
        "with Evaluator('cpu', workers=1) as evaluator:\n"
        "    options = Options(targets=(), profile=False, torch_compile=False, sizes=0)\n"
        "    print([evaluator.evaluate(Problem(name=str(n), source=PLAIN % n), RELU, options).correct for "
        "n in range(2, 14)])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert said.stdout.strip() == str([True] * 12), said.stderr[-2000:]


def test_an_evaluator_allows_its_process_as_many_files_as_the_system_does():
    code = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, "
        "hard))\n"
        "from kernelwright.tools.hardware.open_files import raise_open_files_limit; raise_open_files_limit(); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(said.stdout) == (1 << 16 if hard == resource.RLIM_INFINITY else min(1 << 16, hard))


def test_no_more_than_so_many_allocations_wait_whatever_their_sizes():
    buffers = Buffers("cpu")
    before = len(os.listdir("/proc/self/fd"))
    for count in range(1, 201):
        buffers.new((count * 1000,), (1,), torch.uint8)
        buffers.release()
    assert len(os.listdir("/proc/self/fd")) - before == 2 * MAX_BLOCKS_KEPT_ON_CPU
    buffers.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_tensors_together_share_one_descriptor_and_have_margins_of_their_own():
    buffers = Buffers("cpu")
    first, empty, last = buffers.together(
        [torch.empty(3, 5), torch.empty(0), torch.empty(7, dtype=torch.int64)]
    )
    assert first.fds == empty.fds == last.fds
    for shared in (first, empty, last):
        shared.fill_margins(0xFF)
    first.tensor.fill_(1.0)
    last.tensor.fill_(2)
    assert all(shared.margins_hold(0xFF) for shared in (first, empty, last))
    assert last.spec["start"] - first.spec["start"] - first.nbytes >= 4 * SHARED_MARGIN_BYTES
    first.memory[-1] = 0
    assert [shared.margins_hold(0xFF) for shared in (first, empty, last)] == [False, True, True]
    assert buffers.together([]) == []
    buffers.close()


@pytest.mark.parametrize("count", [0, 1, MAX_DESCRIPTORS, MAX_DESCRIPTORS + 1, 3 * MAX_DESCRIPTORS])
def test_any_number_of_descriptors_arrives_with_its_message_in_order(tmp_path, count):
    ours, theirs = (Channel(end) for end in socket.socketpair())
    files = [os.open(tmp_path / str(i), os.O_CREAT | os.O_RDWR) for i in range(count)]
    ours.send({"files": count}, files)
    ours.send({"next": 1})
    assert theirs.receive() == {"files": count}
    taken = theirs.take_descriptors()
    assert [os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in taken] == [
        str(i) for i in range(count)
    ]
    assert theirs.receive() == {"next": 1}
    for fd in (*files, *taken):
        os.close(fd)


def test_no_descriptors_left_is_told_with_what_to_do(monkeypatch):
    def none_left(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    with pytest.raises(InfrastructureError, match="raise `ulimit -n` or use fewer --workers"):
        Buffers("cpu").new((8,), (1,), torch.uint8)
