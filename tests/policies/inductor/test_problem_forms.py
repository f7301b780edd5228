"""What problems may do where they make their inputs and name their arguments."""

import ast
import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.tracing.execution import examples
from kernelwright.policies.inductor.writing.kept_definitions import _plain_default
from kernelwright.tools.problem import Problem

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


def problem(name: str, forward: str, inputs: str) -> Problem:
    """A model without weights whose forward has these lines."""
    text = f"import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def forward(self, {forward}\n\n"
    text += f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    return Problem(name=name, source=text)


WRITTEN_NUMBERS = problem(
    "written_numbers",
    """x):
        grey = torch.tensor([0.3, 0.6, 0.1], device=x.device)
        turn = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], device=x.device)
        return (x @ turn) * grey""",
    "torch.randn(50, 3)",
)
GIVEN_SIZES = problem(
    "given_sizes",
    """x, normalized_shape, weight, group):
        made = nn.functional.layer_norm(x, normalized_shape, weight)
        return made * weight[torch.arange(x.shape[1], device=x.device) // group]""",
    "torch.randn(6, 40), [40], torch.randn(40), 8",
)
OWN_LAYER = problem(
    "own_layer",
    """x, weight):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight)
        return layer(x)""",
    "torch.randn(20, 12), torch.randn(18, 12)",
)
ALONG = problem(
    "along",
    """x, index):
        return torch.take_along_dim(x, index, dim=1)""",
    "torch.randn(16, 40), torch.randint(0, 40, (16, 24))",
)

CHANNELWISE = problem(
    "channelwise",
    """x, weight):
        return nn.functional.conv1d(x, weight.unsqueeze(1), groups=x.shape[1])""",
    "torch.randn(2, 12, 20), torch.randn(12, 4)",
)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [
        (CHANNELWISE, ()),
        (WRITTEN_NUMBERS, ("x.shape[1]",)),
        (GIVEN_SIZES, ()),
        (OWN_LAYER, ()),
        (ALONG, ()),
    ],
    ids=lambda value: value.name if isinstance(value, Problem) else "",
)
def test_what_forward_writes_or_is_given_is_drafted_for_every_size(
    drafter: Drafter, written: Problem, fixed: object
):
    made = drafter.draft(written)
    assert made.usable, made.refused
    assert made.fixed_sizes == fixed


FORMS = Problem(name="forms", source="""
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Parts(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


@dataclass
class Out:
    whole: torch.Tensor
    parts: Parts


class Scaled(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, x, places):
        low, high = x[..., :4], x[..., 4:]
        return Out(x / self.scale.item() + places, Parts(low.exp(), high.relu()))


class Model(Scaled):
    pass


def get_inputs():
    return [torch.randn(3, 7), torch.arange(7).float().expand(3, -1)]


def get_init_inputs():
    return [7]
""")  # fmt: skip


def test_a_draft_inherits_reads_numbers_cuts_slices_and_answers_in_the_classes_of_the_problem(
    drafter: Drafter,
):
    made = drafter.draft(FORMS)
    assert (made.refused, made.fixed_sizes) == ("", ())
    assert "class ModelNew(Scaled)" in made.source
    assert "return Out(whole=" in made.source
    assert "parts=Parts(low=" in made.source
    assert re.search(r"scale\S* = tl.load\(scale_pointer", made.source), (
        "the number is read where the kernel runs"
    )
    assert "x_shape_0 * min(4, x_shape_1)" in made.source, "an axis may be shorter than a slice"
    assert "places = places.contiguous()" in made.source, "an expanded input is no matrix in memory"


def test_a_draft_leaves_lists_and_tuples_of_its_caller_alone(drafter: Drafter):
    given = "[torch.randn(6, 9), torch.randn(6, 5)], torch.randn(6, 1), torch.randn(6, 1)"
    forward = "parts, *scales):\n        return torch.cat(parts, 1) * scales[0] + scales[1]"
    made = drafter.draft(problem("nested", forward, given))
    assert (made.refused, made.fixed_sizes) == ("", ())
    assert "parts_0 = parts[0].contiguous()" in made.source
    assert not re.search(r"^ *(parts|scales)\[\d\] =", made.source, re.MULTILINE)
