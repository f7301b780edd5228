"""Rows of one draw take turns between the problem's own numbers, special ones, and few among zeros."""

from __future__ import annotations

import torch

from kernelwright.tools.references.input_distributions import Draw, apply_draw


def _kind_of_row(row: torch.Tensor, drawn: torch.Tensor) -> str:
    if torch.equal(row, drawn):
        return "own"
    if float((row == 0).double().mean()) > 0.99:
        return "isolated"
    if bool((row < 0).any()):
        return "special"
    return "near ties" if float((row == drawn).double().mean()) > 0.5 else "structured"


def test_rows_take_turns_between_five_kinds_of_numbers():
    drawn = torch.rand(10, 4000) + 0.5
    mixed = drawn.clone()
    apply_draw(Draw.MIXED_ROWS, [mixed])
    kinds = [_kind_of_row(row, before) for row, before in zip(mixed, drawn, strict=True)]
    assert sorted(kinds[:5]) == ["isolated", "near ties", "own", "special", "structured"]
    assert kinds[:5] == kinds[5:]


def test_who_rounds_before_he_compares_names_another_largest_element():
    for dtype, digits in ((torch.float32, 18), (torch.bfloat16, 5)):
        mixed = torch.randn(80, 3000).to(dtype)
        apply_draw(Draw.MIXED_ROWS, [mixed])
        step = mixed.abs().amax(1, keepdim=True) / 2**digits
        rounded = torch.floor(mixed / step)
        assert int((rounded.argmax(1) != mixed.argmax(1)).sum()) >= 2


def test_a_sum_without_the_first_column_is_far_off_in_some_row():
    drawn = torch.rand(40, 4000) + 0.5
    mixed = drawn.clone()
    apply_draw(Draw.MIXED_ROWS, [mixed])
    without = mixed.clone()
    without[:, 0] = 0
    assert float((without.sum(1) / mixed.sum(1) - 1).abs().max()) > 0.1
    assert float(((drawn.sum(1) - drawn[:, 0]) / drawn.sum(1) - 1).abs().max()) < 1e-3


def test_inputs_of_one_form_agree_and_others_take_turns():
    first, second, alone = torch.rand(4, 4000), torch.rand(4, 4000), torch.rand(8, 4000) + 0.5
    apply_draw(Draw.AGREEING, [first, second])
    assert float((first == second).double().mean()) > 0.99
    apply_draw(Draw.AGREEING, [alone])
    assert int(((alone == 0).double().mean(1) > 0.99).sum()) in (1, 2)


def test_a_tensor_whose_rows_say_everything_twice_stays():
    halves = torch.randn(32, 16).repeat(1, 2)
    held = halves.clone()
    apply_draw(Draw.MIXED_ROWS, [held])
    assert torch.equal(held, halves)
