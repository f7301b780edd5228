"""A kernel is called on inputs that are transposed, sliced and expanded: it may copy, use strides or raise."""

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.judging.rules import SOME_STRIDES
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault, Report, SizeOutcome

REFERENCE_HEAD = "import torch\nimport torch.nn as nn\n\nrows = 5\ncolumns = 12\n\n\n"
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"
INPUTS = "\n\ndef get_inputs():\n    return [{}]\n\n\ndef get_init_inputs():\n    return []\n"
KERNEL = """
@triton.jit
def add_kernel(x, y, out, x_row, x_column, y_row, y_column, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    total = tl.load(x + row * x_row + at * x_column, mask=mask) + tl.load(y + row * y_row + at * y_column, mask=mask)
    tl.store(out + row * columns + at, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        {first}
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        n = x.shape[1]
        add_kernel[(x.shape[0],)](x, y, out, {strides}, n, BLOCK=triton.next_power_of_2(n))
        return out
"""
OPTIONS = Options(
    profile=False, torch_compile=False, sizes=1, seed=5 << 16, contiguous_inputs=False
)


def problem_of(
    forward: str = "return x + y", inputs: str = "torch.randn(rows, columns), torch.randn(rows, columns)"
) -> Problem:  # fmt: skip
    body = f"class Model(nn.Module):\n    def forward(self, x, y):\n        {forward}\n"
    return Problem(name="sum.py", source=REFERENCE_HEAD + body + INPUTS.format(inputs))


def kernel(first: str, strides: str) -> str:
    return HEAD + KERNEL.format(first=first, strides=strides)


def outcomes(report: Report) -> set[SizeOutcome]:
    assert report.interpreted is not None
    return {check.outcome for check in report.interpreted.layouts}


def test_the_input_whose_strides_are_ignored_is_named(evaluator):
    source = kernel("pass", "x.stride(0), x.stride(1), n, 1")
    report = evaluator.evaluate(problem_of(), source, OPTIONS)
    assert report.failure is not None
    assert report.failure.fault is Fault.LAYOUT
    assert report.failure.message.startswith("ignores strides: wrong where input 1 (y) is ")
    assert "input 0" not in report.failure.message
    assert report.ignores_strides.startswith("wrong where input 1 (y)")


def test_a_kernel_right_on_contiguous_inputs_alone_is_correct_where_that_is_enough_and_the_report_says_so(
    evaluator,
):
    source = kernel("pass", "n, 1, n, 1")
    report = evaluator.evaluate(problem_of(), source, OPTIONS.with_(contiguous_inputs=True))
    assert report.correct
    assert report.ignores_strides.startswith("wrong where input 0 (x) is sliced with steps")


@pytest.mark.parametrize(
    ("first", "strides"),
    [("x, y = x.contiguous(), y.contiguous()", "n, 1, n, 1"), ("pass", "*x.stride(), *y.stride()")],
    ids=["copies", "uses the strides"],
)
def test_a_kernel_that_copies_or_uses_strides_is_right_in_every_layout(evaluator, first, strides):
    report = evaluator.evaluate(problem_of(), kernel(first, strides), OPTIONS)
    assert report.correct, report.explanation
    assert outcomes(report) == {SizeOutcome.RIGHT}
    assert not report.ignores_strides


def test_a_kernel_that_raises_on_other_layouts_is_correct_and_they_lie_outside_of_its_contract(
    evaluator,
):
    source = kernel(
        "assert x.is_contiguous() and y.is_contiguous(), 'contiguous inputs only'", "n, 1, n, 1"
    )
    report = evaluator.evaluate(problem_of(), source, OPTIONS)
    assert report.correct, report.explanation
    assert report.interpreted is not None
    first, *others = report.interpreted.layouts  # the first begins elsewhere, and is contiguous
    assert first.outcome is SizeOutcome.RIGHT
    assert {check.outcome for check in others} == {SizeOutcome.OUTSIDE_CONTRACT}
    assert "contiguous inputs only" in others[0].message


def test_nothing_is_said_of_a_layout_that_the_reference_does_not_take(evaluator):
    source = kernel("pass", "n, 1, n, 1")
    report = evaluator.evaluate(
        problem_of("assert x.is_contiguous()\n        return x + y"), source, OPTIONS
    )
    assert report.interpreted is not None
    unused = [check for check in report.interpreted.layouts if check.outcome is SizeOutcome.UNUSED]
    assert "the reference itself" in unused[0].message


def test_an_input_that_the_problem_gives_transposed_stays_so(evaluator):
    given = "torch.randn(columns, rows).t(), torch.randn(rows, columns)"
    report = evaluator.evaluate(
        problem_of(inputs=given), kernel("pass", "1, x.shape[0], *y.stride()"), OPTIONS
    )
    assert report.correct, report.explanation
    assert report.interpreted is not None
    assert {name for check in report.interpreted.layouts for name in check.layouts} == {
        "input 1 (y)"
    }


@pytest.mark.parametrize(
    ("first", "strides"),
    [
        ("pass", "*x.stride(), max(y.stride(0), y.stride(1)), min(y.stride())"),
        ("both = x.stride(0) == y.stride(0) == 1", "*x.stride(), y.stride(0) + both, y.stride(1)"),
    ],
    ids=["longer strides first", "alike"],
)
def test_a_kernel_that_goes_by_strides_and_is_wrong_at_some_earns_no_full_reward(
    evaluator, first, strides
):
    options = OPTIONS.with_(contiguous_inputs=True)
    report = evaluator.evaluate(problem_of(), kernel(first, strides), options)
    assert report.correct, report.failure
    assert report.ignores_strides.startswith("wrong where ")
    assert report.reward_ineligible_because == SOME_STRIDES


def test_it_is_refused_where_every_layout_must_be_right(evaluator):
    strides = "*x.stride(), max(y.stride(0), y.stride(1)), min(y.stride())"
    options = OPTIONS.with_(contiguous_inputs=False)
    report = evaluator.evaluate(problem_of(), kernel("pass", strides), options)
    assert report.failure is not None
    assert report.failure.fault is Fault.LAYOUT


@pytest.mark.parametrize(
    "far", ["x.storage_offset() % 2", "x.storage_offset() > 70", "x.data_ptr() % 16 > 0"]
)
def test_a_kernel_that_depends_on_where_an_input_begins_is_refused(evaluator, far):
    source = kernel(f"wrong = int({far})", "n - wrong, 1, n, 1")
    report = evaluator.evaluate(problem_of(), source, OPTIONS.with_(contiguous_inputs=True))
    assert report.failure is not None
    assert report.failure.message.startswith(
        "depends on where its inputs lie in memory: wrong where input 0 (x)"
    )
