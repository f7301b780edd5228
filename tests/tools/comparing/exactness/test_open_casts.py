"""What a cast makes of NaN is nobody's answer; all other elements of that output are compared."""

from __future__ import annotations

import torch

from kernelwright.tools.comparing.exactness.open_casts import open_elements
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.prepared_problem import expected_outputs, prepare_problem

QUANTISER = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), x + scale
def get_inputs():
    return [torch.randn(12, 64), torch.rand(64) + 0.1]
def get_init_inputs():
    return []
"""


def test_zero_over_a_scale_of_zero_is_open_and_a_number_over_it_is_not():
    prepared = prepare_problem(Problem(name="quantiser", source=QUANTISER), "cpu", 1)
    expected = expected_outputs(prepared, Draw.ZERO_ROWS, 5)
    x, scale = expected.inputs
    quantised, summed = open_elements(prepared, expected)
    assert summed is None
    assert bool(quantised.any())
    assert torch.equal(quantised, (x == 0) & (scale == 0))


def test_without_such_a_cast_nothing_is_open():
    prepared = prepare_problem(Problem(name="quantiser", source=QUANTISER), "cpu", 1)
    assert open_elements(prepared, expected_outputs(prepared, Draw.OWN, 5)) == [None, None]
