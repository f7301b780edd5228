"""A reference with running statistics, judged and timed several times by one judge."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

pytestmark = pytest.mark.gpu
REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        self.average.mul_(0.75).add_(x.mean(0), alpha=0.25)
        return x * 2.0


def get_inputs():
    return [torch.rand(256, 4096)]


def get_init_inputs():
    return [4096]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, average, out, rows, width, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = column < width
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(rows):
        value = tl.load(x + row * width + column, there, other=0.0)
        total += value
        tl.store(out + row * width + column, value * 2.0, there)
    kept = tl.load(average + column, there, other=0.0) * 0.75
    tl.store(average + column, kept + total / rows * 0.25, there)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        out = torch.empty_like(x)
        rows, width = x.shape
        step[(triton.cdiv(width, 64),)](x, self.average, out, rows, width, BLOCK=64)
        return out
"""


def test_a_second_candidate_is_judged_on_the_state_that_the_first_one_was_though_the_reference_was_timed():
    problem = Problem(name="running average", source=REFERENCE)
    with Evaluator("cuda:0", workers=1) as evaluator:
        options = Options(torch_compile=False)
        first = evaluator.evaluate(problem, KERNEL, options)
        assert first.correct, first.explanation
        assert first.speedup is not None
        second = evaluator.evaluate(
            problem, KERNEL.replace("total += value", "total = total + value"), options
        )
        assert second.correct, second.explanation
