"""Rows of inputs are given structures that random numbers never have, without leaving the problem's domain."""

from __future__ import annotations

import torch

from kernelwright.tools.references.input_distributions import Draw, apply_draw
from kernelwright.tools.references.redrawing.row_structures import structured, structured_mask

ROWS, COLUMNS = 400, 33


def of_both_signs() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS)


def share(rows: torch.Tensor) -> float:
    return float(rows.double().mean())


def test_some_rows_have_each_structure():
    drawn = structured(of_both_signs())
    steps = drawn.diff(dim=-1)
    seen = {
        "sorted": (steps >= 0).all(1),
        "sorted downwards": (steps <= 0).all(1),
        "mirrored": (drawn == drawn.flip(-1)).all(1),
        "pairs": (drawn[:, :-1:2] == drawn[:, 1::2]).all(1),
        "few numbers": torch.tensor([row.unique().numel() <= 3 for row in drawn]),
        "one magnitude": (drawn.abs() == drawn[:, :1].abs()).all(1),
        "whole": (drawn == drawn.round()).all(1),
        "even steps": (steps == steps[:, :1]).all(1) & (steps[:, 0] != 0),
        "one hot": ((drawn == 0).sum(1) == COLUMNS - 1),
        "no negative number": (drawn >= 0).all(1),
        "many zeros": (drawn == 0).double().mean(1) > 0.3,
        "the row before": torch.cat([torch.tensor([False]), (drawn[1:] == drawn[:-1]).all(1)]),
    }
    assert {name: share(rows) > 0.01 for name, rows in seen.items()} == dict.fromkeys(seen, True)


def test_numbers_of_one_sign_stay_among_the_rows_own():
    rows = torch.rand(ROWS, COLUMNS) + 0.5
    drawn = structured(rows)
    assert bool((drawn > 0).all())
    assert float(drawn.max()) <= float(rows.max())


def test_zeros_stay_and_so_do_rows_that_are_sorted_or_not_finite():
    triangle = of_both_signs()[:COLUMNS].tril()
    assert bool((structured(triangle).triu(1) == 0).all())
    rising = of_both_signs().sort(dim=-1).values
    assert torch.equal(structured(rising), rising)
    masked = of_both_signs().masked_fill(torch.rand(ROWS, COLUMNS) < 0.1, -torch.inf)
    assert torch.equal(structured(masked), masked)


def test_other_draws_give_a_row_other_structures():
    first, second = structured(of_both_signs()), structured(of_both_signs())
    assert not torch.equal(first[0].argsort(), second[0].argsort())


def test_masks_keep_a_truth_in_each_row_and_get_prefixes():
    mask = torch.rand(ROWS, COLUMNS) < 0.4
    mask[:, 0] = True
    drawn = structured_mask(mask)
    assert bool(drawn.any(1).all())
    counts = drawn.sum(1)
    prefix = torch.arange(COLUMNS) < counts[:, None]
    assert share((drawn == prefix).all(1)) > 0.2
    assert share(counts == 1) > 0.2
    inputs = [of_both_signs(), mask]
    apply_draw(Draw.STRUCTURED, inputs)
    assert torch.equal(inputs[1], drawn)
