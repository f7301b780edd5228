"""Tensors made of Python numbers: `nn.Parameter(torch.tensor(scale))` is compared with the reference's like any
other, and what forward makes so is what a kernel reads.
"""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault

REFERENCE = """
import torch
import torch.nn as nn

batch_size, features = 64, 256
CPU_SIZES = {"batch_size": 3, "features": 17}


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [0.75]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def work(x_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * tl.load(scale_ptr), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        work[(triton.cdiv(n, 1024),)](x, self.scale, out, n, BLOCK=1024)
        return out
"""
WRONG = KERNEL.replace("tl.load(scale_ptr)", "0.5")
OWN = KERNEL.replace("torch.tensor(scale))", "torch.tensor(scale + 1.0))")
FIXED = REFERENCE.replace("x) * self.scale", "x) * 0.75")
MADE = KERNEL.replace("x, self.scale, out", "x, torch.tensor([0.75], device=x.device), out")
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])


@pytest.mark.slow
@on_both
def test_a_parameter_of_no_axes_is_judged(device: str) -> None:
    problem = Problem(name="scaled", source=REFERENCE)
    with Evaluator(device=device) as judge:
        right, wrong, own = (
            judge.evaluate(problem, code, Options(torch_compile=False))
            for code in (KERNEL, WRONG, OWN)
        )
    assert right.correct, right.failure
    assert wrong.failure is not None
    assert wrong.failure.fault is Fault.MISMATCH
    assert own.correct, own.failure  # the reference's weights are loaded into it


@on_both
def test_a_kernel_reads_what_forward_makes_of_numbers(device: str) -> None:
    with Evaluator(device=device) as judge:
        made = judge.evaluate(
            Problem(name="scaled", source=FIXED), MADE, Options(torch_compile=False)
        )
    assert made.correct, made.failure
