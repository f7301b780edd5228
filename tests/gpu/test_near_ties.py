"""An index of the smallest of many numbers that differ by a rounding: right on most draws, wrong on some, and never
a cheat.
"""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault

pytestmark = pytest.mark.gpu
REFERENCE = """
import torch
import torch.nn as nn

rows = 4096
columns = 65536


class Model(nn.Module):
    def forward(self, x):
        return (torch.sigmoid(torch.square(torch.rsqrt(x * x + 0.5))) + 0.1).argmin(dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def smallest(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), float("inf"), tl.float32)
    index = tl.full((BLOCK,), 0, tl.int32)
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < columns
        x = tl.load(x_ptr + row * columns + cols, mask=mask, other=0.0)
        x = tl.rsqrt(x * x + 0.5)
        x = tl.where(mask, tl.sigmoid(x * x) + 0.1, float("inf"))
        better = x < best
        best, index = tl.where(better, x, best), tl.where(better, cols, index)
    top = tl.min(best, axis=0)
    tl.store(out_ptr + row, tl.min(tl.where(best == top, index, columns), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[-1]
        out = torch.empty(x.shape[:-1], device=x.device, dtype=torch.int64)
        smallest[(out.numel(),)](x, out, columns, BLOCK=1024)
        return out
"""


def test_an_unlucky_index_is_no_cheat() -> None:
    with Evaluator(device="cuda:0") as judge:
        problem, options = Problem(name="near_ties", source=REFERENCE), Options(torch_compile=False)
        reports = [judge.evaluate(problem, KERNEL + f"# {n}\n", options) for n in range(6)]
    faults = [report.failure.fault if report.failure else None for report in reports]
    print(faults)
    assert Fault.CHEAT not in faults, [report.failure for report in reports]
