"""Rows of one draw take turns between the problem's own numbers, special ones, and few among zeros."""

from __future__ import annotations

import torch

from kernelwright.tools.references.input_distributions import Draw, apply_draw


def _kind_of_row(row: torch.Tensor, drawn: torch.Tensor) -> str:
    if torch.equal(row, drawn):
        return "own"
    return "isolated" if float((row == 0).double().mean()) > 0.99 else "special"


def test_rows_take_turns_between_own_special_and_isolated_numbers():
    drawn = torch.rand(9, 4000) + 0.5
    mixed = drawn.clone()
    apply_draw(Draw.MIXED_ROWS, [mixed])
    kinds = [_kind_of_row(row, before) for row, before in zip(mixed, drawn, strict=True)]
    assert sorted(kinds[:3]) == ["isolated", "own", "special"]
    assert kinds[:3] == kinds[3:6] == kinds[6:]


def test_a_sum_without_the_first_column_is_far_off_in_some_row():
    drawn = torch.rand(30, 4000) + 0.5
    mixed = drawn.clone()
    apply_draw(Draw.MIXED_ROWS, [mixed])
    without = mixed.clone()
    without[:, 0] = 0
    assert float((without.sum(1) / mixed.sum(1) - 1).abs().max()) > 0.1
    assert float(((drawn.sum(1) - drawn[:, 0]) / drawn.sum(1) - 1).abs().max()) < 1e-3


def test_inputs_of_one_form_agree_and_others_take_turns():
    first, second, alone = torch.rand(4, 4000), torch.rand(4, 4000), torch.rand(6, 4000) + 0.5
    apply_draw(Draw.AGREEING, [first, second])
    assert float((first == second).double().mean()) > 0.99
    apply_draw(Draw.AGREEING, [alone])
    assert int(((alone == 0).double().mean(1) > 0.99).sum()) == 2


def test_a_tensor_whose_rows_say_everything_twice_stays():
    halves = torch.randn(32, 16).repeat(1, 2)
    held = halves.clone()
    apply_draw(Draw.MIXED_ROWS, [held])
    assert torch.equal(held, halves)
