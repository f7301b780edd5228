"""Whose work is done is looked at in other sizes too: a kernel for the first shape that it meets, and torch for the
rest, is none.
"""

import pytest

from bench.judge_suites import KERNELS, problem_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault, Report, SizeOutcome

SOFTMAX = (KERNELS / "good" / "fused_softmax.py").read_text()
FIRST_SHAPE_ONLY = """

class Own(ModelNew):
    pass


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.shape = Own(), None

    def forward(self, x):
        self.shape = self.shape or tuple(x.shape)
        if tuple(x.shape) == self.shape:
            return self.own(x)
        ELSE
"""


def judged(evaluator: Evaluator, at_other_sizes: str, rule: str = "strict") -> Report:
    options = Options(profile=False, torch_compile=False, own_work=rule)
    source = SOFTMAX + FIRST_SHAPE_ONLY.replace("ELSE", at_other_sizes)
    return evaluator.evaluate(problem_of("fused_softmax"), source, options)


@pytest.mark.parametrize("rule", ["strict", "share:0.5", "report"])
def test_a_kernel_for_one_shape_and_torch_for_the_others_is_no_kernel_there(evaluator, rule):
    report = judged(evaluator, "return torch.softmax(x, dim=-1)", rule)
    assert report.failure.fault is Fault.NO_KERNEL
    assert report.failure.message.startswith("at other sizes (")


def test_torch_beside_a_kernel_is_refused_at_other_sizes_as_at_the_problems_own(evaluator):
    report = judged(
        evaluator, "return self.own(torch.softmax(x, dim=-1)) * 0 + torch.softmax(x, dim=-1)"
    )
    assert report.failure.fault is Fault.FALLBACK
    assert report.failure.message.startswith("at other sizes (")


def test_an_exception_of_its_own_at_other_sizes_is_allowed(evaluator):
    report = judged(evaluator, "raise ValueError('one shape only')")
    assert report.correct, report.failure
    assert any(t.outcome is SizeOutcome.OUTSIDE_CONTRACT for t in report.interpreted.tried)


POWERS_OF_TWO = """
import torch
from torch import nn
rows, columns = 4096, 64
CPU_SIZES = {"rows": 5, "columns": 32}
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""
WHOLE_ROWS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def relu_kernel(x, out, COLUMNS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out + at, tl.maximum(tl.load(x + at), 0.0, propagate_nan=tl.PropagateNan.ALL))
class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, out, COLUMNS=x.shape[1])
        return out
"""


def test_a_kernel_that_triton_does_not_take_at_other_sizes_refuses_them_and_is_not_wrong_there(
    evaluator,
):
    problem = Problem(name="powers of two", source=POWERS_OF_TWO)
    report = evaluator.evaluate(problem, WHOLE_ROWS, Options(profile=False))
    outcomes = {t.outcome for t in report.interpreted.tried}
    assert SizeOutcome.WRONG not in outcomes, report.interpreted.tried
    refused = [t for t in report.interpreted.tried if t.outcome is SizeOutcome.REFUSED]
    assert any("power of 2" in t.message for t in refused), report.interpreted.tried
