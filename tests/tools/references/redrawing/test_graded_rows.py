"""Numbers of two magnitudes along every axis: what is left of sums that cancel is wrong."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.expected.by_draw import CANCELLATION, measure_by_draw
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.redrawing.graded_rows import grade, inputs_without_unit

TO_THE_END = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.flip(AXIS).cumsum(AXIS).flip(AXIS)


def get_inputs():
    return [torch.randn(24, 40)]


def get_init_inputs():
    return []
"""


def judged(axis: int, answer):
    problem = Problem(name="sums", source=TO_THE_END.replace("AXIS", str(axis)))
    prepared = prepare_problem(problem, "cpu", 3)
    expected = expected_outputs(prepared, Draw.GRADED, 11)
    return measure_by_draw(answer(expected.inputs[0], axis), expected, 0, "graded")


def by_blocks(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Sums of blocks of 8, each carried on to the blocks before it."""
    out, carried = torch.empty_like(x), torch.zeros_like(x.select(axis, 0)).unsqueeze(axis)
    for begin in range(x.shape[axis] - 8, -1, -8):
        block = x.narrow(axis, begin, 8).flip(axis).cumsum(axis).flip(axis) + carried
        out.narrow(axis, begin, 8).copy_(block)
        carried = block.narrow(axis, 0, 1)
    return out


@pytest.mark.parametrize("axis", [0, 1])
def test_a_total_minus_a_prefix_is_wrong_and_told_as_cancellation(axis):
    found = judged(axis, lambda x, d: x.sum(d, keepdim=True) - x.cumsum(d) + x)
    assert not found.check.passed
    assert found.mismatch is not None
    assert found.mismatch.hint == CANCELLATION


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_in_another_order_are_right(axis):
    assert judged(axis, by_blocks).check.passed


def test_a_quarter_along_each_axis_is_large_at_either_end():
    x = torch.ones(4, 16)
    grade([x], 20)
    assert x[0].tolist() == [2.0**20] * 4 + [1.0] * 12
    assert x[1].tolist() == [1.0] * 12 + [2.0**20] * 4


def test_what_holds_no_such_numbers_stays():
    half, symmetric = torch.ones(4, 16).half(), torch.diag(torch.arange(16.0))
    grade([half, symmetric], 20)
    assert half.max() == 1
    assert symmetric.max() == 15


GATED = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, gates, values):
        total = gates.cumsum(1)
        decays = (total[:, :, None] - total[:, None, :]).tril().exp().tril()
        return (decays @ values[:, :, None]).squeeze(2), values.argmax(1)


def get_inputs():
    return [-torch.rand(8, 24), torch.randn(8, 24)]


def get_init_inputs():
    return []
"""


def test_the_logarithms_of_a_gate_keep_their_unit_and_what_they_weigh_is_graded():
    prepared = prepare_problem(Problem(name="gated", source=GATED), "cpu", 3)
    own = expected_outputs(prepared, Draw.OWN, 11).inputs
    graded = expected_outputs(prepared, Draw.GRADED, 11).inputs
    assert torch.equal(own[0], graded[0])
    assert graded[1].abs().max() > 1000 * own[1].abs().max()


@pytest.mark.parametrize(
    ("reference", "homogeneous"),
    [
        (lambda x: x.cumsum(0), True),
        (lambda x: 1 / x, True),
        (lambda x: x.square().sum(0), True),
        (lambda x: x > 0, True),
        (lambda x: x > 0.5, False),
        (lambda x: x.exp(), False),
        (lambda x: x * 0 + 1, True),
        (lambda x: x + 1, False),
    ],
)
def test_an_input_has_no_unit_where_doubling_it_scales_each_output(reference, homogeneous):
    x = torch.tensor([0.25, -0.375, 3.0, 0.4])
    assert inputs_without_unit([x, 7], lambda inputs: [reference(inputs[0])]) == (
        (0,) if homogeneous else ()
    )
