"""The draw with infinities holds both, also in small tensors."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw, apply_draw


def test_small_tensors_hold_an_infinity_of_each_sign_at_every_seed():
    for seed in range(200):
        x = torch.randn(5, 67, generator=torch.Generator().manual_seed(seed))
        apply_draw(Draw.INFINITE, [x])
        assert (x == float("inf")).any(), seed
        assert (x == float("-inf")).any(), seed
        assert x.isfinite().float().mean() > 0.9
        assert not x.isnan().any()


def test_a_mask_of_ones_does_not_become_infinite_as_a_whole():
    x = (torch.arange(400).reshape(20, 20) % 2).float()
    apply_draw(Draw.INFINITE, [x])
    ones_and_noughts = x[torch.arange(20) % 2 == 0]
    assert ones_and_noughts.isfinite().any()


def test_it_is_a_function_of_the_values_alone():
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
    turned = x.t().contiguous()
    apply_draw(Draw.INFINITE, [x, turned])
    assert torch.equal(x.t(), turned)


PROBLEM = """
import pytest
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return ANSWER
def get_inputs():
    return [torch.randn(40, 64), torch.randn(64, 40)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("answer", "bounded"),
    [
        ("torch.softmax(x @ y, 1)", True),
        ("torch.nn.functional.scaled_dot_product_attention(x, y.t(), x)", True),
        ("torch.exp(x).sum() + (x @ y)", False),
        ("torch.relu(x @ y)", False),
        ("torch.softmax(x * y.t(), 1)", False),
    ],
)
def test_scores_that_are_exponentiated_are_products_of_smaller_powers(answer, bounded):
    """A kernel that fuses a score's scaling with the subtraction of the largest one overflows above 2^31."""
    prepared = prepare_problem(
        Problem(name="scores", source=PROBLEM.replace("ANSWER", answer)), "cpu", 3
    )
    x, y = expected_outputs(prepared, Draw.INFINITE, 1).inputs
    largest = max(float(v[v.isfinite()].abs().max()) for v in (x, y))
    assert (largest <= 1 << 14) is bounded
    assert x.isinf().any()
    assert y.isinf().any()
