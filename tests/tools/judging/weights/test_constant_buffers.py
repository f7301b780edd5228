"""Buffers that are equal for every seed are constants of the problem: a constructor may compute with them."""

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Cheat, Fault

BRIEFLY = Options(profile=False, torch_compile=False, sizes=1, seed=3 << 16)
PROBLEM = """
import torch
import torch.nn as nn

length = 6
channels = 10


class Model(nn.Module):
    def __init__(self, length, channels):
        super().__init__()
        self.register_buffer("frequencies", {frequencies})
        self.length = length

    def forward(self, x):
        angles = torch.outer(torch.arange(self.length, device=x.device), self.frequencies)
        return x * torch.cos(angles)


def get_inputs():
    return [torch.randn(3, length, channels)]


def get_init_inputs():
    return [length, channels]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn_kernel(x, table, out, size, period, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    tl.store(out + at, tl.load(x + at, mask=mask) * tl.load(table + at % period, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, length, channels):
        super().__init__()
        self.register_buffer("frequencies", {frequencies})
        angles = torch.outer(torch.arange(length), self.frequencies)
        self.register_buffer("table", torch.cos(angles), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        turn_kernel[(triton.cdiv(n, 64),)](x, self.table, out, n, self.table.numel(), BLOCK=64)
        return out
"""
CONSTANT = "10000.0 ** (-torch.arange(channels) / channels)"


def judged(evaluator, frequencies):
    problem = Problem(name="turned.py", source=PROBLEM.replace("{frequencies}", frequencies))
    return evaluator.evaluate(problem, KERNEL.replace("{frequencies}", frequencies), BRIEFLY)


def test_a_table_of_cosines_of_constant_frequencies_is_made_in_the_constructor(evaluator):
    report = judged(evaluator, CONSTANT)
    assert report.correct, report.explanation


def test_a_table_of_cosines_of_drawn_frequencies_does_not_follow_those_that_are_loaded(evaluator):
    report = judged(evaluator, "torch.rand(channels)")
    assert report.failure.fault is Fault.CHEAT
    assert report.failure.cheat is Cheat.WEIGHTS
