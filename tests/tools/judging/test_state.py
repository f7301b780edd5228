"""References that keep something from call to call: a candidate is judged on the state that each call begins with."""

from __future__ import annotations

import pytest

from kernelwright.tools.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        self.average.mul_(0.75).add_(x.sum(0), alpha=0.25)
        return x - self.average


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return [32]
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
        total += tl.load(x + row * width + column, there, other=0.0)
    new = tl.load(average + column, there, other=0.0) * 0.75 + total * 0.25
    tl.store(average + column, new, there)
    for row in range(rows):
        tl.store(out + row * width + column, tl.load(x + row * width + column, there, other=0.0) - new, there)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        out = torch.empty_like(x)
        rows, width = x.shape
        step[(triton.cdiv(width, 32),)](x, self.average, out, rows, width, BLOCK=32)
        return out
"""


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator("cpu", workers=1) as found:
        yield found


def test_a_running_average_is_right_in_every_call(evaluator):
    options = Options(profile=False, torch_compile=False)
    problem = Problem(name="running average", source=REFERENCE)
    report = evaluator.evaluate(problem, KERNEL, options)
    assert report.correct, report.explanation
    again = evaluator.evaluate(problem, KERNEL, options)
    assert again.correct, again.explanation


def test_a_running_average_with_another_weight_is_wrong(evaluator):
    wrong = KERNEL.replace("total * 0.25", "total * 0.26")
    report = evaluator.evaluate(Problem(name="running average", source=REFERENCE), wrong, Options(profile=False))
    assert report.failure.fault is Fault.MISMATCH, report.explanation
