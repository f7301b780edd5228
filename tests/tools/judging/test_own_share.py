"""`--own-work share:P` on a CPU: the share of the problem's operations that torch leaves to the candidate's own
kernels.
"""

import pytest

from bench.judge_suites import KERNELS, problem_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.report import Fault, Report

RELU = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < n)
class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
    def forward(self, x):
        x = self.linear(x)
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def judged(evaluator: Evaluator, source: str, rule: str) -> Report:
    options = Options(profile=False, torch_compile=False, own_work=rule)
    return evaluator.evaluate(problem_of("matmul_bias_relu"), source, options)


def product_in_triton_relu_in_torch() -> str:
    source = (KERNELS / "good" / "matmul_bias_relu.py").read_text()
    return source.replace("tl.maximum(acc, 0.0)", "acc").replace(
        "return out", "return torch.relu(out)"
    )


def test_a_product_of_its_own_with_a_relu_left_to_torch_does_nearly_all_the_work(evaluator):
    report = judged(evaluator, product_in_triton_relu_in_torch(), "share:0.9")
    assert report.correct, report.failure
    work = report.interpreted.own_work
    assert work.share_of == "operations"
    assert 0.9 < work.share < 1.0


def test_a_relu_of_its_own_after_a_product_in_torch_does_nearly_none(evaluator):
    report = judged(evaluator, RELU, "share:0.5")
    assert report.failure.fault is Fault.FALLBACK
    assert "of the problem's operations" in report.failure.message
    assert report.interpreted.own_work.share < 0.1


@pytest.mark.slow
def test_the_share_is_told_under_every_rule(evaluator):
    assert judged(evaluator, RELU, "report").interpreted.own_work.share < 0.1
    whole = (KERNELS / "good" / "matmul_bias_relu.py").read_text()
    assert judged(evaluator, whole, "strict").interpreted.own_work.share == 1.0


def test_the_same_candidate_that_share_accepts_is_refused_by_strict(evaluator):
    report = judged(evaluator, product_in_triton_relu_in_torch(), "strict")
    assert report.failure.fault is Fault.FALLBACK
    assert "torch computes beside the kernels" in report.failure.message
