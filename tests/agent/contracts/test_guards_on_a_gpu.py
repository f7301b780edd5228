"""The guard of a written file as a GPU's tensors meet it: real Triton kernels and tensors of cuda:0, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, Report, Tried

PROBLEM = Problem(
    name="norm.py",
    source="""
import torch
import torch.nn as nn

channels = 8
batch = 4


class Model(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, eps=eps)
        self.eval()

    def forward(self, x):
        return x * self.norm.weight


def get_inputs():
    return [torch.randn(batch, channels)]


def get_init_inputs():
    return [channels]
""",
)
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, weight, out, elements, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < elements
    tl.store(out + places, tl.load(x + places, mask) * tl.load(weight + places % channels, mask), mask)


class ModelNew(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, eps=eps)

    def forward(self, x):
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, self.norm.weight, out, x.numel(), x.shape[1], BLOCK=256)
        return out
"""
OWN_OPERATORS = ["aten.empty_like.default"]
"""What forward itself asks of torch before it launches its kernel."""


pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What a written file does with an input in the judged layout, and in another one."""
    sizes = [{"batch": b, "channels": c} for b, c in ((4, 8), (3, 5), (7, 2))]
    stage = CorrectnessResult(
        device="cpu",
        interpreted=True,
        sizes=sizes[0],
        tried=tuple(Tried(sizes=size) for size in sizes),
    )
    report = Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        correct=True,
        judged_on="cpu",
        interpreted=stage,
    )
    file = tmp_path_factory.mktemp("written") / "norm_triton.py"
    file.write_text(guarded_kernel(PROBLEM, KERNEL, report).text)
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(Path(__file__).with_name("traced_guard.py")), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_guard_traces_without_a_break_and_leaves_only_the_launch(calls):
    own = ["empty_like", "triton_kernel_wrapper_mutation"]
    assert calls["as judged"]["graph"] == ["resolve_conj", "resolve_neg", *own]
    assert calls["transposed"]["graph"] == ["empty_permuted", "copy_", *own]


def test_the_guard_asks_nothing_of_the_device_for_an_input_in_the_judged_layout(calls):
    assert calls["as judged"]["operators"] == OWN_OPERATORS


def test_the_guard_of_another_layout_makes_one_copy_and_reads_no_element(calls):
    copying = ["aten.empty_permuted.default", "aten.copy_.default"]
    assert calls["transposed"]["operators"] == [*copying, *OWN_OPERATORS]


def test_the_call_gets_as_far_as_the_launch(calls):
    assert {"driver" in calls[layout]["end"] for layout in calls} == {True}
