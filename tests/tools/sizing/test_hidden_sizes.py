"""Whose work is done is looked at in other sizes too: a kernel for the first shape that it meets, and torch for the
rest, is none.
"""

import pytest

from bench.judge_suites import KERNELS, problem_of
from kernelwright.tools.pipeline import Evaluator, Options
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
    report = judged(evaluator, "return self.own(torch.softmax(x, dim=-1)) * 0 + torch.softmax(x, dim=-1)")
    assert report.failure.fault is Fault.FALLBACK
    assert report.failure.message.startswith("at other sizes (")


def test_an_exception_of_its_own_at_other_sizes_is_allowed(evaluator):
    report = judged(evaluator, "raise ValueError('one shape only')")
    assert report.correct, report.failure
    assert any(t.outcome is SizeOutcome.REFUSED for t in report.interpreted.tried)
