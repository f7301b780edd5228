"""Draws that are made to turn comparisons: what they do to inputs, and which of them the reference can be given."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import PreparedProblem, prepare_problem
from kernelwright.tools.expected.searched_draws import (
    Change,
    Put,
    Scaled,
    Spread,
    searched_outputs,
    usable_numbers,
)
from kernelwright.tools.problem import Problem

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {}
def get_inputs():
    return [{}]
def get_init_inputs():
    return []
"""


def prepared(forward: str, inputs: str = "torch.randn(24, 40)") -> PreparedProblem:
    return prepare_problem(Problem(name="p", source=PROBLEM.format(forward, inputs)), "cpu", 1)


def test_numbers_fill_rows_and_stand_among_others_with_either_sign_and_numbers_near_them() -> None:
    x = torch.randn(24, 40)
    Put((7e20,)).floating(x)
    number = torch.tensor(7e20)
    assert bool((x == number).any())
    assert bool((x == -number).any())
    assert int(((x / number - 1).abs() < 1e-3).sum()) > 10
    assert bool(((x[0] >= number) & (x[0] <= 2 * number)).all())
    assert bool(((x[2] <= number) & (x[2] >= number / 2)).all())


def test_whole_numbers_are_put_with_their_neighbours_and_keep_their_sign() -> None:
    x = torch.arange(60, dtype=torch.int32)
    Put((-100.0, 1e30)).whole(x)
    assert set(x[::2].tolist()) == {99, 100, 101}


def test_magnitudes_spread_over_all_powers_of_two() -> None:
    x = torch.randn(24, 40)
    Spread(100).floating(x)
    assert float(x.abs().max()) > 2.0**90
    assert float(x.abs().min()) < 2.0**-90
    assert bool((x > 0).any())
    assert bool((x < 0).any())


def test_rows_are_scaled_by_powers_of_a_factor_in_turns() -> None:
    x = torch.ones(6, 4)
    Scaled(1e6).floating(x)
    wanted = [1.5e6, 1.5e3, 1.5e12, 1.5e2, 1e-6 / 1.5, 1e-3 / 1.5]
    assert torch.allclose(x[:, 0], torch.tensor(wanted), rtol=1e-4)


@pytest.mark.parametrize("change", [Put((1e30,)), Spread(100), Scaled(1e25)])
def test_inputs_on_which_the_reference_overflows_are_not_used(change: Change) -> None:
    assert searched_outputs(prepared("x * x"), change, 3) is None
    assert searched_outputs(prepared("x * 0.5"), change, 3) is not None


def test_ranges_of_inputs_are_kept() -> None:
    expected = searched_outputs(
        prepared("x * 1.0", "torch.sigmoid(torch.randn(24, 40))"), Put((7.0,)), 3
    )
    assert expected is not None
    assert float(expected.inputs[0].max()) <= 1.0


def test_what_no_change_can_reach_is_not_run() -> None:
    assert searched_outputs(prepared("x[0]", "torch.arange(9)"), Spread(50), 3) is None


def test_numbers_that_cannot_be_given_are_separated_from_those_that_can() -> None:
    legal = usable_numbers((1.0, 2.0, 1e30, 4.0), lambda group: max(group) < 1e20, 12)
    assert sorted(legal) == [1.0, 2.0, 4.0]
    assert usable_numbers((1e30,), lambda group: False, 12) == ()
