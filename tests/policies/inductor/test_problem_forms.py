"""What problems may do where they make their inputs and name their arguments."""

import ast

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelwright.policies.inductor.tracing.graph import examples
from kernelwright.policies.inductor.writing.keeping import _plain_default

DRAWN = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    x = torch.randn(6, 5)
    x[x > 1] = x[x > 1] - 3.0
    return [x * (torch.rand(1) + 1).item()]


def get_init_inputs():
    return []
"""


def test_inputs_that_need_values_to_be_drawn_come_without_values():
    _, (x,), _ = examples(DRAWN, FakeTensorMode(allow_non_fake_inputs=True))
    assert (type(x).__name__, x.shape, x.dtype) == ("FakeTensor", torch.Size([6, 5]), torch.float32)


@pytest.mark.parametrize(("given", "kept"), [("forward_fn", "None"), ("WIDTH + 1", "None"), ("1e-05", "1e-05"),
                                             ("torch.float32", "torch.float32"), ("None", "None")])  # fmt: skip
def test_a_default_that_the_problem_names_is_not_copied(given, kept):
    assert ast.unparse(_plain_default(ast.parse(given, mode="eval").body)) == kept
