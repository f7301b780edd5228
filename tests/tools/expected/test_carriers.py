"""Inputs that never vary are drawn anew, as far from the problem's own as the reference answers with finite numbers."""

from __future__ import annotations

import torch

from kernelwright.tools.expected.carriers import constant_inputs, redraw
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, other):
        return {answer}


def get_inputs():
    return [torch.randn(16, 24), {other}]


def get_init_inputs():
    return []
"""


def redrawn(answer: str, other: str) -> torch.Tensor:
    prepared = prepare_problem(
        Problem(name="p", source=PROBLEM.format(answer=answer, other=other)), "cpu", 1
    )
    own = expected_outputs(prepared, Draw.OWN, 3)
    drawn = expected_outputs(prepared, Draw.REDRAWN, 3)
    assert torch.equal(drawn.inputs[0], own.inputs[0])  # it varies by itself
    assert all(bool(o.isfinite().all()) for o in drawn.eager)
    return drawn.inputs[1]


def test_inputs_that_are_equal_in_every_draw_are_found():
    fixed, same = torch.ones(3), torch.arange(4)
    assert constant_inputs(
        [[torch.ones(3), torch.tensor([1.0]), 5, same], [fixed, torch.tensor([2.0]), 5, same]]
    ) == (
        0,
        3,
    )


def test_a_state_of_zeros_becomes_normal_numbers():
    state = redrawn("x + other", "torch.zeros(16, 24)")
    assert 0.8 < float(state.std()) < 1.2
    assert bool((state != 0).all())


def test_a_causal_mask_falls_by_a_coin_as_long_as_no_row_is_masked_throughout():
    mask = redrawn(
        "torch.softmax(x.masked_fill(~other, -torch.inf), -1)", "torch.ones(16, 24).tril().bool()"
    )
    causal = torch.ones(16, 24).tril().bool()
    assert bool((mask & ~causal).any())
    assert bool((causal & ~mask).any())
    assert bool(mask.any(-1).all())


def test_full_lengths_become_lengths_that_are_not_full_and_not_zero_where_one_divides_by_them():
    lengths = redrawn("x.sum(1) / other", "torch.full((16,), 24)")
    assert len(lengths.unique()) > 4
    assert 1 <= int(lengths.min()) < int(lengths.max()) <= 24


def test_offsets_keep_their_order_and_their_ends_and_groups_get_several_sizes():
    offsets = redrawn(
        "torch.searchsorted(other, (8 * x.abs()).long()).float()", "torch.arange(5) * 4"
    )
    steps = offsets.diff()
    assert (int(offsets[0]), int(offsets[-1])) == (0, 16)
    assert bool((steps > 0).all())
    assert len(steps.unique()) > 1


def test_an_identity_matrix_gets_ones_beside_its_diagonal():
    turn = redrawn("x @ other", "torch.eye(24)")
    assert set(turn.unique().tolist()) == {0.0, 1.0}
    assert int(turn.sum()) > 100


def test_an_index_stays_within_what_it_indexes():
    index = redrawn("x[:, other]", "torch.arange(24)")
    assert sorted(index.tolist()) == list(range(24))
    assert index.tolist() != list(range(24))


def test_an_input_whose_values_the_reference_does_not_use_stays_as_it_is():
    assert torch.equal(redrawn("x + other.shape[0]", "torch.arange(7) * 3"), torch.arange(7) * 3)


def test_values_on_which_the_reference_is_not_finite_are_not_used():
    own = torch.full((8,), 2.0)
    inputs = [own.clone()]
    assert redraw(inputs, (0,), 1, lambda drawn: bool((drawn[0] > 1e9).all())) == ()
    assert torch.equal(inputs[0], own)


def test_complex_inputs_that_never_vary_get_other_parts_in_every_draw():
    spectrum = redrawn("(x * other).abs()", "torch.ones(24, dtype=torch.complex64)")
    assert float(spectrum.imag.std()) > 0.3
    prepared = prepare_problem(
        Problem(
            name="p", source=PROBLEM.format(answer="(x * other).abs()", other="torch.ones(24) + 1j")
        ),
        "cpu",
        1,
    )
    assert float(expected_outputs(prepared, Draw.LARGE, 3).inputs[1].abs().max()) > 15
