"""References that people write and a judge may stumble over: the copy of each is right, and what is a little off is
not.
"""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Fault
from tests.copied_references import candidate

FORM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
ODD = {
    "inputs that want gradients": ("x, y", "return F.normalize(x, dim=1) * y",
    "torch.randn(6, 5, requires_grad=True), nn.Parameter(torch.randn(6, 5))"),
    "fails on rows of one number": ("a, b", "return torch.linalg.solve(a, b)",
    "torch.tensor([[3.0, 1.0], [1.0, 2.0]]), torch.randn(2, 3)"),
    "fails on anything negative": ("x",
    "if torch.any(x <= 0):\n            raise ValueError('not positive')\n        return torch.tanh(torch.log(x))",
    "torch.rand(6, 40) + 0.1"),
    "reads what it checks": ("a",
    "if not torch.allclose(a, a.mT):\n            raise ValueError('not symmetric')\n        return "
    "torch.linalg.cholesky(a)", "torch.tensor([[4.0, 2.0], [2.0, " "3.0]])"),
    "torch does not know its shape without data": ("x, mask", "return F.gelu(torch.masked_select(x, mask))",
    "torch.randn(7, 9), torch.arange(63).view(7, 9) % 3 == 0"),
    "sizes that only fail with data": (
        "x, w, b", "return F.relu(F.batch_norm(F.conv2d(x, w, b, padding=1), None, None, training=True))",
        "torch.randn(4, 3, 16, 16), torch.randn(6, 3, 3, 3), torch.randn(6)",
    ),
    "writes to its input": ("x, i", "x.add_(1.0)\n        return x.clone() if i.sum() > 2 else x * 0.5",
    "torch.randn(4, 8), torch.tensor([1, 2])"),
}  # fmt: skip

RANDOM = {
    "dropout in training mode": "return F.dropout(x, 0.5, training=True) * 2.0",
    "torch.rand in forward": "return x + torch.rand_like(x)",
}
"""References whose answer follows torch's generator."""
KERNEL_ALONE = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""

WITHOUT_VALUES = {
    "fails on anything negative": ("if torch.any(x <= 0):\n            raise ValueError('not positive')\n        ", ""),
    "reads what it checks": ("if not torch.allclose(a, a.mT):\n            raise ValueError('not symmetric')\n        ",
    ""),
    "writes to its input": ("x.clone() if i.sum() > 2 else x * 0.5", "torch.where(i.sum() > 2, x.clone(), x * 0.5)"),
}  # fmt: skip
"""What of a reference its copy says otherwise: host code of a candidate does not read what a tensor holds."""


def copy_of(name: str, variant: str) -> str:
    said, instead = WITHOUT_VALUES.get(name, ("", ""))
    text = candidate(problem_of(name), variant)
    assert said in text
    return text.replace(said, instead) if said else text


def problem_of(name: str) -> Problem:
    arguments, body, inputs = ODD[name]
    return Problem(name=name, source=FORM.format(arguments=arguments, body=body, inputs=inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ODD if "without data" not in name])
def test_an_odd_reference_is_judged(evaluator, name):
    problem, options = (
        problem_of(name),
        Options(profile=False, torch_compile=False, own_work="report"),
    )
    right = evaluator.evaluate(problem, copy_of(name, "unchanged"), options)
    assert right.correct, right.failure or right.warnings
    wrong = evaluator.evaluate(problem, copy_of(name, "one element 2 % off"), options)
    assert wrong.failure is not None
    assert wrong.failure.fault in ("mismatch", "precision")


@pytest.mark.parametrize("name", [*WITHOUT_VALUES, "torch does not know its shape without data"])
def test_host_code_that_reads_what_a_tensor_holds_is_told_so(evaluator, name):
    options = Options(profile=False, torch_compile=False, own_work="report")
    report = evaluator.evaluate(problem_of(name), candidate(problem_of(name), "unchanged"), options)
    assert report.failure is not None
    assert report.failure.fault is Fault.UNTRACEABLE
    assert "decides by shapes and numbers alone" in report.failure.message


def test_a_draw_that_the_reference_does_not_take_is_left_out_and_said(evaluator):
    problem = problem_of("fails on anything negative")
    text = copy_of("fails on anything negative", "unchanged")
    report = evaluator.evaluate(
        problem, text, Options(profile=False, torch_compile=False, own_work="report")
    )
    assert report.interpreted is not None
    assert any(
        note.startswith("signed: not used, the reference") for note in report.interpreted.notes
    ), report.interpreted.notes
    assert {check.draw for check in report.interpreted.checks} >= {"own", "constant_rows"}


@pytest.mark.parametrize("inputs", ["torch.tensor([1.0, 2.0, 3.0, -4.0]), torch.ones(4)",
    "torch.tensor(6.0), torch.tensor(3.0)"])  # fmt: skip
@pytest.mark.parametrize("change", ["rounded to float16", "0.1 % too large"])
def test_whole_numbers_as_inputs_do_not_hide_half_precision(evaluator, change, inputs):
    """With axes and without: a number without any ended the judge where an answer was a little off on another draw."""
    problem = Problem(name="whole", source=FORM.format(arguments="x, y", body="return torch.relu(x) + y",
        inputs=inputs))  # fmt: skip
    options = Options(profile=False, torch_compile=False, own_work="report")
    assert evaluator.evaluate(problem, candidate(problem, "unchanged"), options).correct
    wrong = evaluator.evaluate(problem, candidate(problem, change), options)
    assert wrong.failure is not None
    assert wrong.failure.fault in ("mismatch", "precision")


@pytest.mark.parametrize("name", RANDOM)
def test_a_reference_that_is_random_is_a_fault_of_the_problem_and_blames_no_candidate(
    evaluator, name
):
    problem = Problem(
        name=name, source=FORM.format(arguments="x", body=RANDOM[name], inputs="torch.randn(6, 50)")
    )
    with pytest.raises(ProblemError) as refused:
        evaluator.evaluate(problem, KERNEL_ALONE, Options(profile=False, torch_compile=False))
    assert str(refused.value).startswith(
        "the reference is random: output 0 follows torch's generator"
    )
    assert (
        "put .eval() on the module, set dropout to 0, or make the random numbers an input"
        in str(refused.value)
    )


def test_a_candidate_that_draws_what_a_random_reference_draws_is_right_as_before(evaluator):
    body = RANDOM["dropout in training mode"]
    problem = Problem(
        name="live dropout",
        source=FORM.format(arguments="x", body=body, inputs="torch.randn(6, 50)"),
    )
    kept = KERNEL_ALONE.replace(
        "(x, y, x.numel()", "(torch.nn.functional.dropout(x, 0.5), y, x.numel()"
    )
    report = evaluator.evaluate(
        problem, kept, Options(profile=False, torch_compile=False, own_work="report")
    )
    assert report.interpreted.random_outputs == (0,)
    assert report.correct, report.explanation


def test_a_reference_that_reads_values_has_the_same_form_for_every_target(evaluator):
    body = "return x * 2.0 if float(x[0, 0]) < 1e30 else x * 3.0"
    source = FORM.format(arguments="x", body=body, inputs="torch.rand(rows, 4096)").replace(
        "class", "rows = 4096\nclass", 1
    )
    targets = Options(targets=("sm_90", "sm_80"), profile=False, interpret=False)
    report = evaluator.evaluate(Problem(name="large", source=source), KERNEL_ALONE, targets)
    assert [made.failure for made in report.compiles] == [None, None]
