"""Inputs with infinities and huge numbers: what a sum of them loses is allowed, what was cut off is not."""

from __future__ import annotations

import torch

from kernelwright.tools.comparing.comparison import measure_finite_part


def test_what_is_left_of_a_cancellation_may_differ_in_the_last_places_of_the_largest():
    eager = torch.tensor([3e13, 1e6, -2e13])
    assert measure_finite_part(eager + torch.tensor([0.0, 1.9e6, 0.0]), eager, None, draw="infinite").check.passed


def test_a_number_that_was_cut_off_is_wrong():
    eager = torch.tensor([4e6, 1.0, -4e6])
    assert not measure_finite_part(eager.clamp(-1e6, 1e6), eager, None, draw="infinite").check.passed


def test_an_infinity_that_became_a_number_is_wrong():
    eager = torch.tensor([float("inf"), 1.0])
    found = measure_finite_part(torch.tensor([3e38, 1.0]), eager, None, draw="infinite")
    assert found.fault is not None
