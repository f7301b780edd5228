"""Sizes beside the base are traced while gradients are recorded, on parameters and on views: as users call modules."""

from __future__ import annotations

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.evaluation.pipeline import Options

KERNEL = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def sum_kernel(x, out, columns, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * columns + at, mask=at < columns, other=0.0))
    tl.store(out + row, total * scale)

class ModelNew(nn.Module):
    def forward(self, x):
        {before}
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        sum_kernel[(rows,)](x, out, columns, {scale}, BLOCK=256)
        return out
"""
OTHERWISE = {
    "gradients are recorded": "0.5 if torch.is_grad_enabled() else 1.0",
    "the input requires gradients": "0.5 if x.requires_grad else 1.0",
    "the input is a parameter": "0.5 if isinstance(x, nn.Parameter) else 1.0",
    "the input is a view": "0.5 if x._base is not None else 1.0",
}


def judged(evaluator, scale: str, before: str = "pass"):
    source = KERNEL.replace("{scale}", scale).replace("{before}", before)
    return evaluator.evaluate(
        problem_of("row_sum"), source, Options(profile=False, torch_compile=False)
    )


@pytest.mark.parametrize("when", OTHERWISE)
def test_a_kernel_that_does_something_else_in_training_is_refused(evaluator, when):
    assert not judged(evaluator, OTHERWISE[when]).correct


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "assert not x.requires_grad, 'no gradients'",
        "x = x.detach()",
        "x = x.contiguous()",
    ],
)
def test_a_kernel_that_refuses_gradients_or_does_not_mind_them_is_right(evaluator, before):
    report = judged(evaluator, "1.0", before)
    assert report.correct, report.failure
