"""Draws in which few elements decide, and draws on which formulas that are not stable lose their digits."""

from __future__ import annotations

import torch

from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw, apply_draw
from kernelwright.tools.references.redrawing.isolation import deciding_elements

NORM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-12)


def get_inputs():
    return [torch.randn(6, 40)]


def get_init_inputs():
    return []
"""


def test_the_deciding_elements_walk_over_the_first_the_last_and_the_edges_of_blocks():
    mask = deciding_elements(torch.zeros(12, 1000), per_row=2)
    assert bool((mask[:-1].sum(1) <= 2).all())
    assert bool((mask.sum(1) >= 1).all())
    assert [
        bool(mask[row, column]) for row, column in enumerate((0, 999, 1, 998, 500, 15, 16))
    ] == [True] * 7
    assert mask[-1, -3:].tolist() == [True] * 3
    assert bool(deciding_elements(torch.zeros(1)).all())


def test_isolated_numbers_stand_among_zeros_or_minus_infinities_and_zeros_stay():
    x = torch.randn(8, 64)
    x[:, 5] = 0
    zeros, alone = x.clone(), x.clone()
    apply_draw(Draw.ISOLATED, [zeros])
    apply_draw(Draw.ALONE, [alone])
    mean = float(x.abs().mean())
    large = x.abs().clamp(min=mean).copysign(x)
    assert bool(((zeros == 0) | (zeros == large)).all())
    assert 8 * 2 <= int((zeros != 0).sum()) <= 8 * 6 + 3
    assert (
        8 <= int((alone > -torch.inf).sum()) <= 8 * 3 + 3
    )  # two of each row, its zero, and the last three of all
    assert bool(((alone == -torch.inf) | (alone == 16 * large) | (x == 0)).all())
    assert bool((alone[:, 5] == 0).all())
    assert bool((alone > -torch.inf).any(-1).all())


def test_tensors_of_which_a_kernel_may_read_a_part_are_left_alone():
    symmetric, halves = torch.randn(32, 32), torch.randn(32, 16).repeat(1, 2)
    symmetric = symmetric + symmetric.mT
    for draw in (Draw.ISOLATED, Draw.OFFSET, Draw.AGREEING):
        held = symmetric.clone(), halves.clone()
        apply_draw(draw, [*held])
        assert torch.equal(held[0], symmetric)
        assert torch.equal(held[1], halves)


def test_targets_agree_with_predictions_but_for_a_few_numbers():
    x, y = torch.randn(20, 100), torch.randn(20, 100)
    own = y.clone()
    apply_draw(Draw.AGREEING, [x, y])
    assert bool(((y == x) | (y == own)).all())
    assert 20 * 2 <= int((y != x).sum()) <= 20 * 6 + 3
    apply_draw(Draw.CONVERGED, [x, y])
    assert 0 < float(((y - x).abs() / x.abs()).max()) < 0.1


def test_probabilities_agree_with_logarithms_as_their_exponentials():
    logarithms, targets = (
        torch.log_softmax(torch.randn(20, 100), -1),
        torch.softmax(torch.randn(20, 100), -1),
    )
    apply_draw(Draw.AGREEING, [logarithms, targets])
    assert int((targets == logarithms.exp()).sum()) >= 2000 - 20 * 6 - 3


def test_rows_get_offsets_of_a_thousand_to_a_hundred_thousand_times_their_spread():
    x = torch.randn(6, 400)
    apply_draw(Draw.OFFSET, [x])
    offsets = [float(row.mean().log10()) for row in x]
    assert min(offsets) < 3.4
    assert max(offsets) > 4.4
    assert all(2.9 < offset < 5.1 for offset in offsets)
    assert len({round(offset, 2) for offset in offsets}) == len(offsets)


def test_rows_are_scaled_as_far_as_the_reference_is_accurate():
    prepared = prepare_problem(Problem(name="p", source=NORM), "cpu", 1)
    expected = expected_outputs(prepared, Draw.SCALED, 3)
    sizes = expected.inputs[0].abs().amax(-1)
    assert 2.0**45 < float(sizes.max()) < 2.0**56
    assert float(sizes.min()) < 2.0**-30
    assert bool((expected.inputs[0][2] <= 0).all())


def test_rows_are_scaled_less_where_the_reference_loses_its_digits():
    cubes = NORM.replace(
        "return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-12)",
        "return x**3",
    )
    prepared = prepare_problem(Problem(name="p", source=cubes), "cpu", 1)
    largest = float(expected_outputs(prepared, Draw.SCALED, 3).inputs[0].abs().max())
    assert 2.0**20 < largest < 2.0**30  # cubes of 2^50 overflow
