"""What a reference sorts has one answer where elements are equal, and what it searches in stays sorted."""

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.numerics.seeds import stable_sorts
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

TEXT = """
import torch
from torch import nn
n, edges = 300, 21
class Model(nn.Module):
    def forward(self, x, edges):
        return {what}
def get_inputs():
    return [torch.randn(n), torch.sort(torch.randn(edges)).values]
def get_init_inputs():
    return []
"""
CALLS = {
    "sort": lambda x: torch.sort(x, dim=-1, descending=True)[1],
    "sort by place": lambda x: torch.sort(x, -1, True)[1],
    "method": lambda x: x.sort().indices,
    "method by place": lambda x: x.sort(-1, descending=True)[1],
    "argsort": lambda x: torch.argsort(x, descending=True),
    "argsort method": lambda x: x.argsort(-1, True),
}


@pytest.mark.parametrize("name", CALLS)
def test_equal_elements_keep_their_order(name: str):
    rows = torch.zeros(3, 72)
    with stable_sorts():
        places = CALLS[name](rows)
    assert torch.equal(places, torch.arange(72).expand(3, 72))


def test_other_elements_are_sorted_as_ever():
    x = torch.randn(4, 9)
    with stable_sorts():
        values, places = torch.sort(x, 0, True)
    expected = torch.sort(x, dim=0, descending=True)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def prepared(what):
    return prepare_problem(Problem(name="places", source=TEXT.replace("{what}", what)), "cpu", 0)


@pytest.mark.parametrize(
    "draw", [Draw.SIGNED, Draw.WIDE, Draw.NEGATIVE, Draw.SPECIAL, Draw.MEETING]
)
def test_edges_that_are_searched_in_stay_sorted(draw):
    x, edges = expected_outputs(prepared("torch.bucketize(x, edges)"), draw, 5).inputs
    assert bool((edges[1:] >= edges[:-1]).all())
    assert not bool((x[1:] >= x[:-1]).all())


def test_edges_are_sorted_at_another_size_too():
    base = prepared("torch.bucketize(x, edges)")
    small = Problem(
        name="places",
        source=TEXT.replace("{what}", "torch.bucketize(x, edges)").replace("300", "70"),
    )
    edges = expected_outputs(prepare_problem(small, "cpu", 0, like=base), Draw.SIGNED, 5).inputs[1]
    assert bool((edges[1:] >= edges[:-1]).all())


def test_a_sorted_input_that_nothing_is_searched_in_is_drawn_as_ever():
    edges = expected_outputs(prepared("x[:, None] * edges"), Draw.SIGNED, 5).inputs[1]
    assert not bool((edges[1:] >= edges[:-1]).all())
