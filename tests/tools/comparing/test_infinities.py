"""Inputs with infinities and huge numbers: what a sum of them loses is allowed, what was cut off is not."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.special_values import measure_finite_part, measure_with_nan
from kernelwright.tools.expected.by_draw import measure_by_draw
from kernelwright.tools.expected.perturbed_outputs import outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

EXPLOITS = Path(__file__).parents[2] / "exploits"


def test_what_is_left_of_a_cancellation_may_differ_in_the_last_places_of_the_largest():
    eager = torch.tensor([3e13, 1e6, -2e13])
    assert measure_finite_part(
        eager + torch.tensor([0.0, 1.9e6, 0.0]), eager, None, draw="infinite"
    ).check.passed


def test_a_number_that_was_cut_off_is_wrong():
    eager = torch.tensor([4e6, 1.0, -4e6])
    assert not measure_finite_part(
        eager.clamp(-1e6, 1e6), eager, None, draw="infinite"
    ).check.passed


def test_an_infinity_that_became_a_number_is_wrong():
    eager = torch.tensor([float("inf"), 1.0])
    found = measure_finite_part(torch.tensor([3e38, 1.0]), eager, None, draw="infinite")
    assert found.fault is not None


def test_no_answer_is_let_pass_beside_an_infinity_and_nowhere_else():
    inputs, nan = [torch.tensor([float("inf"), 1.0])], torch.tensor([1.0, float("nan")])
    eager = torch.tensor([1.0, 1.0])
    given = {"draw": "infinite", "inputs": inputs}
    assert measure_finite_part(nan, eager, None, **given).check.passed
    assert not measure_finite_part(nan.flip(0), eager, None, **given).check.passed
    assert not measure_finite_part(
        nan, eager, None, kind=ArithmeticKind.EXACT, **given
    ).check.passed
    assert not measure_finite_part(
        nan, eager, None, draw="named", inputs=[torch.ones(2)]
    ).check.passed


def test_a_nan_that_is_lost_is_told_with_its_values():
    eager = torch.tensor([float("nan"), 2.0, 3.0])
    found = measure_with_nan(torch.tensor([7.0, 2.0, 3.0]), eager, None, draw="nan").mismatch
    assert math.isnan(found.first.expected)
    assert found.first.got == 7.0


@pytest.mark.parametrize(
    ("draw", "seed"), [(Draw.INFINITE, 7638), (Draw.INFINITE, 7224), (Draw.NAN, 7102)]
)
def test_what_is_left_of_a_sum_may_be_off_by_as_much_as_its_terms_lose_whatever_eager_lost_of_it(
    draw, seed
):
    source = (EXPLOITS / "problems" / "row_sums.py").read_text()
    prepared = prepare_problem(
        Problem(name="row_sums", source=source).with_sizes({"rows": 5, "columns": 67}), "cpu", 3
    )
    drawn = expected_outputs(prepared, draw, seed)

    def passes(made):
        moved = partial(outputs_of_perturbed_inputs, prepared, drawn)
        return measure_by_draw(made, drawn, 0, str(draw), moved=moved).check.passed

    by_halves = torch.nn.functional.pad(drawn.inputs[0], (0, 61))
    while by_halves.shape[1] > 1:
        left, right = by_halves.chunk(2, dim=1)
        by_halves = left + right
    one_by_one = drawn.inputs[0].cumsum(1)[:, -1]
    assert passes(by_halves[:, 0])
    assert passes(one_by_one)
    assert not passes(by_halves[:, 0] + 5.0)
    assert not passes(one_by_one + 5.0)
