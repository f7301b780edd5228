"""Sizes that a candidate's guard fixes keep the problem's own values, and the others are varied."""

from __future__ import annotations

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem, inner_integers, module_integers, pinned
from kernelwright.tools.report import SizeOutcome

PROBLEM = Problem(
    name="rows.py",
    source="""
import torch
import torch.nn as nn

ROWS = 300
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
""",
)
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row * columns + at, tl.maximum(x, 0.0) * 2.0, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        {guard}
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=512)
        return out
"""
COLUMNS_ALONE = (
    "if x.shape[1] != 512:\n            raise ValueError('this kernel is for 512 columns')"
)
OWN_SIZE_ALONE = (
    "if x.shape != (300, 512):\n            raise ValueError('this kernel is for 300 rows of 512')"
)
WRONG_ELSEWHERE = (
    COLUMNS_ALONE + "\n        if x.shape[0] != 300:\n            return x.clone() * 0.0"
)
OPTIONS = Options(profile=False, torch_compile=False, targets=())


def test_a_pinned_size_is_no_number_that_may_change():
    text = pinned(PROBLEM.source, {"COLUMNS": 512})
    assert module_integers(text) == {"ROWS": 300}
    assert "COLUMNS = int(512)" in text


def test_a_pinned_extent_without_a_name_is_no_number_that_may_change():
    source = PROBLEM.source.replace("(ROWS, COLUMNS)", "(300, 512)")
    text = pinned(source, {"x.shape[1]": 512})
    assert "(300, int(512))" in text
    assert inner_integers(text) == {"x.shape[0]": 300}


def test_a_kernel_for_one_number_of_columns_is_checked_there_with_other_numbers_of_rows(evaluator):
    report = evaluator.evaluate(PROBLEM, KERNEL.format(guard=COLUMNS_ALONE), OPTIONS)
    assert report.correct, report.explanation
    right = [tried for tried in report.interpreted.tried if tried.outcome is SizeOutcome.RIGHT]
    assert len({tried.sizes["ROWS"] for tried in right}) > 2
    assert all("COLUMNS" not in tried.sizes for tried in right)
    assert any(note.startswith("own size only of COLUMNS 512") for note in report.interpreted.notes)


def test_a_kernel_that_takes_its_own_size_alone_is_refused_as_before(evaluator):
    report = evaluator.evaluate(PROBLEM, KERNEL.format(guard=OWN_SIZE_ALONE), OPTIONS)
    assert not report.correct
    assert "this kernel is for 300 rows of 512" in report.failure.message


def test_a_guard_hides_no_wrong_answer_at_the_sizes_that_stay_free(evaluator):
    report = evaluator.evaluate(PROBLEM, KERNEL.format(guard=WRONG_ELSEWHERE), OPTIONS)
    assert not report.correct
