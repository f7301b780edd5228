"""What follows from a choice among equals is right for another choice too, and for no worse one."""

from __future__ import annotations

import torch

from kernelwright.tools.expected.choices.near_ties import IndexRecorder, is_as_good
from kernelwright.tools.expected.choices.other_choices import other_choices


def choosing(values: torch.Tensor, take):
    """A reference's run in float64 or as eager, which sees the values through a rounding."""
    return lambda exact: take(values.double() if exact else values.double().float())


def tokens(values: torch.Tensor) -> list[torch.Tensor]:
    best, at = values.topk(2)
    return [at % 3, best]


def test_what_follows_from_near_equals_is_found_with_the_other_one_first():
    values = torch.tensor([400.0, 1.0, 2.0, 3.0, 400.0 + 1e-5, 5.0], dtype=torch.float64)
    found = {tuple(exact[0].tolist()) for exact, _ in other_choices(choosing(values, tokens))}
    assert (0, 1) in found
    assert found <= {(0, 1), (1, 0)}


def test_eager_makes_the_choices_of_float64():
    values = torch.tensor([400.0, 1.0, 2.0, 3.0, 400.0 + 1e-5, 5.0], dtype=torch.float64)
    for exact, eager in other_choices(choosing(values, tokens)):
        assert torch.equal(exact[0], eager[0])


def test_where_there_is_one_choice_there_is_no_other():
    values = torch.tensor([4.0, 1.0, 2.0, 3.0, 8.0, 5.0], dtype=torch.float64)
    for take in (
        tokens,
        lambda v: [v.max(0).indices],
        lambda v: [v.sort().indices],
        lambda v: [v * 2],
    ):
        assert not list(other_choices(choosing(values, take)))


def test_of_equal_values_topk_may_name_the_first_or_the_last_and_argmax_the_first():
    values = torch.ones(6, dtype=torch.float64)
    found = [tuple(exact[0].tolist()) for exact, _ in other_choices(choosing(values, tokens))]
    assert {(0, 1), (2, 1)} >= set(found)
    assert not list(other_choices(choosing(values, lambda v: [v.argmax(0)])))


def test_a_running_maximum_may_be_named_at_any_of_near_equals_up_to_its_place():
    values = torch.tensor([1.0, 3.0, 3.0 + 1e-9, 2.0], dtype=torch.float64)
    exact, eager = IndexRecorder(), IndexRecorder()
    with exact.noting():
        expected = values.cummax(0).indices
    with eager.noting():
        values.float().cummax(0)
    named = [is_as_good(torch.tensor(n), expected, exact.calls, eager.calls) for n in
        ([0, 1, 1, 1], [0, 1, 2, 2], [0, 2, 2, 2], [0, 1, 0, 2], [0, 1, 2, 3])]  # fmt: skip
    assert named == [True, True, False, False, False]
