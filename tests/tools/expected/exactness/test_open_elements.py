"""Nothing is asked where a cast is undefined or a usual form has no answer; all other elements are compared."""

from __future__ import annotations

import torch

from kernelwright.tools.expected.exactness.open_elements import (
    fill_open_elements,
    where_casts_are_undefined,
)
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

QUANTISER = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), x + scale
def get_inputs():
    return [torch.randn(12, 64), torch.rand(64) + 0.1]
def get_init_inputs():
    return []
"""


def test_zero_over_a_scale_of_zero_is_open_and_a_number_over_it_is_not():
    prepared = prepare_problem(Problem(name="quantiser", source=QUANTISER), "cpu", 1)
    expected = expected_outputs(prepared, Draw.ZERO_ROWS, 5)
    x, scale = expected.inputs
    quantised, summed = where_casts_are_undefined(prepared, expected)
    assert summed is None
    assert bool(quantised.any())
    assert torch.equal(quantised, (x == 0) & (scale == 0))


def test_without_such_a_cast_nothing_is_open():
    prepared = prepare_problem(Problem(name="quantiser", source=QUANTISER), "cpu", 1)
    assert where_casts_are_undefined(prepared, expected_outputs(prepared, Draw.OWN, 5)) == [
        None,
        None,
    ]


TANH = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)
def get_inputs():
    return [torch.randn(12, 64)]
def get_init_inputs():
    return []
"""


def test_tanh_by_exp_has_no_answer_for_an_infinity_and_another_number_is_no_answer_either():
    prepared = prepare_problem(Problem(name="tanh", source=TANH), "cpu", 1)
    expected = expected_outputs(prepared, Draw.INFINITE, 5)
    [x], [eager] = expected.inputs, expected.eager
    by_exp = (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)
    assert bool(by_exp.isnan().any())
    assert not fill_open_elements(prepared, expected, 0, by_exp).isnan().any()
    wrong = torch.where(by_exp.isnan(), 5.0, by_exp)
    assert fill_open_elements(prepared, expected, 0, wrong) is None
    lost = torch.where(x == eager, torch.nan, eager)
    assert fill_open_elements(prepared, expected, 0, torch.full_like(lost, torch.nan)).isnan().any()


SOFTMAX = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x / 0.7, -1)
def get_inputs():
    return [torch.randn(23, 300)]
def get_init_inputs():
    return []
"""


def test_a_product_that_is_fused_with_the_subtraction_of_a_rounded_maximum_may_be_nan_for_huge_scores_alone():
    prepared = prepare_problem(Problem(name="softmax", source=SOFTMAX), "cpu", 1)
    expected = expected_outputs(prepared, Draw.SCALED, 5)
    [x], [eager] = expected.inputs, expected.eager
    scores = x.double() / 0.7
    fused = torch.exp((scores - scores.float().amax(-1, keepdim=True)).float())
    answer = fused / fused.sum(-1, keepdim=True)
    assert bool(answer.isnan().any())
    filled = fill_open_elements(prepared, expected, 0, answer)
    assert filled is not None
    assert not filled.isnan().any()
    filled = fill_open_elements(prepared, expected, 0, torch.full_like(eager, torch.nan))
    huge = scores.amax(-1).abs() > 1e12
    assert not filled[huge].isnan().any()
    assert filled[scores.abs().amax(-1) < 1e8].isnan().all()
    assert fill_open_elements(prepared, expected, 0, torch.where(huge[:, None], 5.0, eager)) is None
