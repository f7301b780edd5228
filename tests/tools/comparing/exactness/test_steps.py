"""An output that steps may be on the other side of a step where noise moves it, seldom, and not on one side alone."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.perturbed_outputs import steps_of_outputs
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    expected_outputs,
    prepare_problem,
)
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
GRID = "torch.randint(-200, 200, (160, 70)).float() * 0.05"
NORMAL = "torch.randn(160, 700)"
ROWS = "torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)"


def drawn(body: str, inputs: str, draw: Draw = Draw.OWN) -> tuple[ExpectedOutputs, object]:
    source = REFERENCE.format(body=body, inputs=inputs)
    prepared = prepare_problem(Problem(name="steps", source=source), "cpu", 1)
    assert prepared.kinds == (ArithmeticKind.STEPPED,)
    expected = expected_outputs(prepared, draw, 5)
    return expected, steps_of_outputs(prepared, expected)[0]


def passes(answer: torch.Tensor, expected: ExpectedOutputs, steps: object) -> bool:
    [eager], [exact] = expected.eager, expected.exact
    given = {"kind": ArithmeticKind.STEPPED, "eps": expected.coarsest_eps(), "moved": lambda: steps}
    return measure(answer.to(eager.dtype), eager, exact, **given).check.passed


def test_a_reciprocal_in_place_of_a_division_rounds_some_elements_to_the_other_side():
    expected, steps = drawn(ROWS, NORMAL)
    [x], [eager] = expected.inputs, expected.eager
    honest = torch.round(x * (127 / x.abs().amax(-1, keepdim=True)))
    assert passes(honest, expected, steps)
    assert not passes(torch.floor(x / (x.abs().amax(-1, keepdim=True) / 127)), expected, steps)
    one_off = eager.clone()
    one_off[7, 9] += 1
    assert not passes(one_off, expected, steps)


def _half_up(x):
    return torch.floor(x / 0.1 + 0.5)


def _half_away(x):
    return torch.sign(x) * torch.floor(x.abs() / 0.1 + 0.5)


@pytest.mark.parametrize("rounding", [_half_up, _half_away])
@pytest.mark.parametrize(
    "body", ["torch.round(x / 0.1).to(torch.int8)", "torch.round(x / 0.1) * 0.1"]
)
def test_halves_on_a_grid_that_are_rounded_another_way_are_wrong(body, rounding):
    expected, steps = drawn(body, GRID)
    [x], [eager] = expected.inputs, expected.eager
    scale = 1 if eager.dtype == torch.int8 else 0.1
    assert passes(torch.round(x / 0.1) * scale, expected, steps)
    assert not passes(rounding(x) * scale, expected, steps)


def test_a_comparison_with_a_rounded_quotient_keeps_its_side():
    expected, steps = drawn("x / 0.1 > 5.0", GRID)
    [x] = expected.inputs
    assert passes(x / 0.1 > 5.0, expected, steps)
    assert not passes(x / 0.1 >= 5.0, expected, steps)


def test_what_is_right_in_half_precision_is_right_in_single():
    """Eager's own steps in bf16 are coarse; a kernel that computes in fp32 lies where float64 does."""
    expected, steps = drawn(
        "torch.floor(x / 0.1).to(torch.int64)", f"({NORMAL}).to(torch.bfloat16)"
    )
    [x] = expected.inputs
    assert passes(torch.floor(x.double() / 0.1), expected, steps)


def test_floats_after_a_step_are_held_to_their_own_noise():
    expected, steps = drawn("torch.round(x / 0.1) * 0.1", NORMAL)
    [x], [eager] = expected.inputs, expected.eager
    assert passes(torch.round(x * 10.0) * 0.1, expected, steps)
    assert not passes(eager * (1 + 1e-4), expected, steps)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_whole_numbers_are_compared_by_their_own_values(dtype):
    largest = (torch.arange(4000) % 2 == 0) if dtype == torch.bool else torch.arange(4000).to(dtype)
    if dtype == torch.int64:
        largest += 2**62 + 1  # neighbours of float64 are 1,024 apart here
    other = ~largest if dtype == torch.bool else largest ^ 1
    compared = measure(other, largest, largest, kind=ArithmeticKind.EXACT)
    assert not compared.check.passed
    assert measure(largest.clone(), largest, largest, kind=ArithmeticKind.EXACT).check.passed
