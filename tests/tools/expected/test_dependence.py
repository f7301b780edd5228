"""Elements that a kernel did not read: whether the reference's answer depends on them."""

from __future__ import annotations

import pytest

from kernelwright.tools.expected.dependence import require_inputs_read
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Failed

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask):
        return {}


def get_inputs():
    return [{}, torch.ones(4, 8).tril().bool()]


def get_init_inputs():
    return []
"""


def require(answer: str, unread: list) -> None:
    prepared = prepare_problem(
        Problem(name="p", source=PROBLEM.format(answer, "torch.randn(4, 8)")), "cpu", 1
    )
    require_inputs_read(prepared, expected_outputs(prepared, Draw.OWN, 3), unread)


def test_an_input_that_is_never_read_is_named():
    with pytest.raises(Failed, match="input 1 is never read, and the answer depends on it"):
        require("x * mask", [(1, [(0, 32)])])


def test_an_element_that_seldom_decides_is_named():
    with pytest.raises(
        Failed, match=r"1 of 32 elements of input 0 are never read, the first at \[0, 7\]"
    ):
        require("x.amax(-1)", [(0, [(7, 8)])])


def test_elements_on_which_nothing_depends_need_not_be_read():
    require("x[:, :6].sum(-1)", [(0, [(6, 8), (14, 16), (22, 24), (30, 32)]), (1, [(0, 32)])])
    require("x.masked_fill(~mask, 0.0).sum(-1)", [(0, [(1, 8)])])


def test_half_of_a_symmetric_matrix_need_not_be_read_and_all_of_it_must_be():
    symmetric = "torch.ones(4, 4) + torch.arange(4.0) + torch.arange(4.0)[:, None]"
    source = PROBLEM.format("x @ x", symmetric)
    prepared = prepare_problem(Problem(name="p", source=source), "cpu", 1)
    expected = expected_outputs(prepared, Draw.OWN, 3)
    require_inputs_read(prepared, expected, [(0, [(1, 4)])])
    with pytest.raises(Failed, match="input 0 is never read"):
        require_inputs_read(prepared, expected, [(0, [(0, 16)])])
