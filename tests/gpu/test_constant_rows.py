"""Thousands of rows of one number each, some of them next to a zero of the function: the usual forms are right
there, lower precision is not.
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
columns = 2048


class Model(nn.Module):
    def forward(self, x):
        return FUNCTION


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
def work(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, FORM, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        work[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""
FORMS = {
    "torch.tanh(x)": "2.0 * tl.sigmoid(2.0 * x) - 1.0",
    "torch.nn.functional.elu(x)": "tl.where(x > 0, x, tl.exp(x) - 1.0)",
    "torch.log1p(torch.abs(x))": "tl.log(1.0 + tl.abs(x))",
}


@pytest.mark.parametrize("function", FORMS)
def test_the_usual_form_is_right_and_one_in_half_precision_is_not(function: str) -> None:
    problem = Problem(name="constant_rows", source=REFERENCE.replace("FUNCTION", function))
    low = f"({FORMS[function]}).to(tl.float16).to(tl.float32)"
    with Evaluator(device="cuda:0") as judge:
        honest, cheat = (
            judge.evaluate(problem, KERNEL.replace("FORM", form), Options(torch_compile=False))
            for form in (FORMS[function], low)
        )
    assert honest.correct, honest.failure
    assert cheat.failure is not None
    assert cheat.failure.fault is Fault.PRECISION
