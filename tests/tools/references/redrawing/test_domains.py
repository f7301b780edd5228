"""The domain of an input: read from the functions that made it, or from its two values, and kept by every draw."""

from __future__ import annotations

import math

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import WITH_NAN, Draw
from kernelwright.tools.references.redrawing.domains import (
    TWO_VALUES,
    Interval,
    domains_of,
    holds_two_values,
    watch_intervals,
)

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, *inputs):
        return sum(x.sum() for x in inputs)


def get_inputs():
    return [{}]


def get_init_inputs():
    return []
"""


def domain_of(expression: str) -> object:
    with watch_intervals() as intervals:
        tensor = eval(expression, {"torch": torch})
    return domains_of([tensor], intervals)[0]


@pytest.mark.parametrize(
    ("expression", "domain"),
    [
        ("torch.sigmoid(torch.randn(9))", Interval(0.0, 1.0)),
        ("torch.randn(9).sigmoid().view(3, 3).half()", Interval(0.0, 1.0)),
        ("0.5 * torch.softmax(torch.randn(9), -1)", Interval(0.0, 0.5)),
        ("1 - torch.randn(9).sigmoid_()", Interval(0.0, 1.0)),
        ("-torch.exp(torch.randn(9))", Interval(-math.inf, 0.0)),
        ("torch.randn(9).abs() + 0.25", Interval(0.25, math.inf)),
        ("-torch.rand(9)", Interval(-math.inf, 0.0)),
        ("-0.5 * torch.rand(9)", Interval(-math.inf, 0.0)),
        ("torch.log_softmax(torch.randn(9), -1)", Interval(-math.inf, 0.0)),
        ("torch.rand(9)", None),
        ("torch.randn(9) * torch.sigmoid(torch.randn(9))", None),
        ("torch.sigmoid(torch.randn(9)).sub_(torch.randn(9))", None),
        ("(torch.arange(9) % 2).float()", TWO_VALUES),
        ("torch.zeros(9)", None),
        ("torch.arange(9)", None),
    ],
)
def test_the_domain_follows_from_the_last_functions_of_an_input(expression: str, domain: object):
    assert domain_of(expression) == domain


def test_one_value_three_values_and_few_elements_are_no_two_values():
    assert holds_two_values(torch.tensor([-1.0, 1.0] * 8))
    assert not holds_two_values(torch.ones(16))
    assert not holds_two_values(torch.tensor([0.0, 1.0, 2.0] * 8))
    assert not holds_two_values(torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("draw", [d for d in Draw if d not in (*WITH_NAN, Draw.SEARCHED)])
def test_every_draw_keeps_gates_negative_rates_and_masks_in_their_domains(draw: Draw):
    text = (
        "torch.sigmoid(torch.randn(4, 40)), -torch.rand(4, 40), (torch.rand(4, 40) < "
        "0.5).float(), torch.randn(4, 40)"
    )
    prepared = prepare_problem(Problem(name="p", source=PROBLEM.format(text)), "cpu", 1)
    gate, rate, mask, free = expected_outputs(prepared, draw, 5).inputs
    assert bool(((gate >= 0) & (gate <= 1)).all())
    assert bool((rate <= 0).all())
    assert set(mask.unique().tolist()) <= {0.0, 1.0}
    if draw in (Draw.SIGNED, Draw.WIDE):
        assert bool((free < 0).any())
        assert not torch.equal(gate, gate.clamp(0.4, 0.6))
