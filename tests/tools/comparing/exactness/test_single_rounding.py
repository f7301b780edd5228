"""Draws with an easy answer: numbers that eager rounds once, and rows that are equal."""

import torch

from kernelwright.tools.comparing.exactness.single_rounding import lost_bits, unequal_rows


def _selected() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of weights that a matrix selects, with a bias: eager's, float64's, and the weights."""
    torch.manual_seed(3)
    weights, bias = torch.randn(40, 64), torch.randn(64) / 100
    return weights + bias, weights.double() + bias.double(), weights


def test_a_sum_of_two_bfloats_loses_bits_and_a_float_does_not() -> None:
    eager, exact, weights = _selected()
    upper = weights.bfloat16().float()
    two_halves = upper + (weights - upper).bfloat16().float()
    bias = (exact - weights.double()).float()
    assert lost_bits(eager, eager, exact) is None
    assert lost_bits(eager * (1 + 2.0**-22), eager, exact) is None
    lost = lost_bits(two_halves + bias, eager, exact)
    assert lost is not None
    assert lost.double().mean() > 0.02


def test_nothing_is_asked_where_eager_rounds_more_than_once() -> None:
    _, exact, weights = _selected()
    eager = exact.float() * (1 + 2.0**-22)
    assert lost_bits(weights.bfloat16().float(), eager, exact) is None


def test_rounding_by_chance_shows_in_equal_rows_of_sixteen_bits() -> None:
    torch.manual_seed(4)
    values = (torch.randn(64) * 3).expand(32, 64)
    eager = values.bfloat16()
    by_chance = (values * (1 + (torch.rand(32, 64) - 0.5) * 2.0**-7)).bfloat16()
    assert unequal_rows(eager, eager) is None
    assert unequal_rows(by_chance, eager) is not None
    assert unequal_rows(by_chance, by_chance) is None
    assert unequal_rows(by_chance.float(), eager.float()) is None
