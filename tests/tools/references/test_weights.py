"""Parameters that cannot be loaded: when nothing shows whether a candidate uses them."""

from __future__ import annotations

import pytest

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.references.weights import require_visible_weights
from kernelwright.tools.report import Failed, Fault

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.randn(3, 7)]


def get_init_inputs():
    return []
"""
NORM, DRAWN, SCALE = (
    "self.norm = nn.LayerNorm(7)",
    "self.norm = nn.LayerNorm(7); nn.init.normal_(self.norm.weight); nn.init.normal_(self.norm.bias)",
    "self.scale = nn.Parameter(torch.randn(1))",
)


def look_at(made: str, answer: str) -> None:
    problem = Problem(name="reference", source=REFERENCE.format(made=made, answer=answer))
    prepared = prepare_problem(problem, "cpu", 3)
    require_visible_weights(prepared, expected_outputs(prepared, Draw.OWN, 5))


def test_ones_and_zeros_that_a_norm_is_made_with_cannot_be_seen():
    with pytest.raises(Failed) as failed:
        look_at(NORM, "self.norm(x)")
    assert failed.value.failure.fault is Fault.UNCHECKED
    assert "norm.weight, norm.bias" in failed.value.failure.message


def test_weights_that_are_drawn_show_whether_they_are_used():
    look_at(DRAWN, "self.norm(x)")


def test_one_number_that_is_drawn_is_not_taken_for_a_constant():
    look_at(SCALE, "x * self.scale")


def test_constant_weights_that_the_answer_does_not_need_are_no_matter():
    look_at(NORM, "x + 0 * self.norm(x)")
