"""Small elements are held to their own size, and half precision to rounding rather than cutting."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.expected.exactness.usual_forms import usual_forms
from kernelwright.tools.expected.perturbed_outputs import outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Fault

torch.manual_seed(11)


def _without_small(x: torch.Tensor, least: float) -> torch.Tensor:
    made = torch.softmax(x, -1)
    return torch.where(made < least, 0.0, made)


@pytest.mark.parametrize("least", [8e-7, 1e-9, 1e-20])
def test_probabilities_that_are_cut_off_are_wrong_whatever_their_rows_hold(least):
    x = torch.randn(64, 200) * 20
    eager, exact = torch.softmax(x, -1), torch.softmax(x.double(), -1)
    assert measure(torch.softmax(x.flip(-1), -1).flip(-1), eager, exact, draw="large").check.passed
    found = measure(_without_small(x, least), eager, exact, draw="large")
    assert found.fault is Fault.PRECISION
    assert "relative to their own size" in found.mismatch.hint


def test_a_sum_in_another_order_passes_where_next_to_nothing_is_left_of_it():
    x = torch.randn(3000, 257)
    eager, exact = x.sum(-1), x.double().sum(-1)
    one_by_one = x.cumsum(-1)[:, -1]
    assert measure(one_by_one, eager, exact).check.passed


def _cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Towards zero."""
    made = values.to(dtype)
    smaller = torch.nextafter(made, torch.zeros_like(made))
    return torch.where(made.double().abs() > values.abs(), smaller, made)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [F.silu, F.gelu, torch.exp])
def test_numbers_of_sixteen_bits_are_rounded_and_not_cut(dtype, function):
    x = torch.randn(64, 300).to(dtype)
    eager, exact = function(x), function(x.double())
    assert measure(function(x.float()).to(dtype), eager, exact).check.passed
    steps = function(x.float()).to(torch.bfloat16).to(dtype) if dtype == torch.bfloat16 else eager
    assert measure(steps, eager, exact).check.passed
    found = measure(_cut(exact, dtype), eager, exact)
    assert found.fault is Fault.PRECISION
    assert "mean signed error" in found.mismatch.hint


NAIVE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softplus(x)
def get_inputs():
    return [torch.randn(96, 130)]
def get_init_inputs():
    return []
"""


def test_softplus_by_exp_and_log_passes_and_one_that_ends_too_early_does_not():
    prepared = prepare_problem(Problem(name="softplus", source=NAIVE), "cpu", 1)
    expected = expected_outputs(prepared, Draw.LARGE, 5)
    [x], [eager], [exact] = expected.inputs, expected.eager, expected.exact
    moved = lambda: outputs_of_perturbed_inputs(prepared, expected)[0]  # noqa: E731
    naive = torch.where(x > 20, x, torch.log(1 + torch.exp(x)))
    assert measure(naive, eager, exact, draw="large", moved=moved).check.passed
    assert not measure(
        torch.where(x < -3, 0.0, naive), eager, exact, draw="large", moved=moved
    ).check.passed


def test_usual_forms_count_the_functions_that_they_replace():
    x = torch.randn(50)
    with (forms := usual_forms()):
        made = [
            F.softplus(x),
            F.mish(x),
            torch.log1p(x.abs()),
            torch.expm1(x),
            F.logsigmoid(x),
            torch.sin(x),
        ]
    assert forms.seen == 5
    for form, function in zip(made, [F.softplus, F.mish], strict=False):
        assert torch.allclose(form, function(x), atol=1e-6)
