"""A refusal says what could not be drafted and where, also where torch ends without a word."""

from types import SimpleNamespace

import pytest
import sympy
import torch

from kernelwright.policies.inductor import inductor_patches
from kernelwright.policies.inductor.process import _describe_failure
from kernelwright.policies.inductor.refusing import DraftRefused, operator_of, reason_of
from kernelwright.tools.problem import Problem

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        y = x + 1
        return torch.amin(y, dim=1)
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""


def node_of(operator):
    graph = torch.fx.Graph()
    return graph.call_function(operator, (graph.placeholder("x"), [1]))


def scheduling(node):
    """As torch's own code does it: the node is at hand where it fails."""
    if node is not None:
        raise AssertionError


def failed(function, *args):
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


def test_an_assertion_without_a_word_is_told_with_its_place_its_operator_and_the_problem_s_line():
    told = _describe_failure(failed(scheduling, node_of(torch.ops.aten.amin.default)), PROBLEM)
    assert "AssertionError in scheduling (test_refusing.py:" in told
    assert ": raise AssertionError)" in told
    assert "at the operator amin at line 7 (return torch.amin(y, dim=1))" in told
    assert "\n" not in told


def test_what_inductor_schedules_names_the_operators_that_it_came_from():
    kind = type("SchedulerNode", (), {"__module__": "torch._inductor.scheduler"})
    one = kind()
    one.node = SimpleNamespace(origins={node_of(torch.ops.aten.amin.default)})
    whole = kind()
    whole.snodes = [one]
    assert operator_of(failed(scheduling, one)) == "amin"
    assert operator_of(failed(scheduling, whole)) == "amin"


@pytest.mark.parametrize(
    "error", [AssertionError(), KeyError(), NotImplementedError(""), RuntimeError("\n")]
)
def test_no_reason_is_the_bare_name_of_an_exception(error):
    told = reason_of(error, PROBLEM)
    assert len(told) > len(type(error).__name__) + 3


def test_what_is_refused_by_name_stays_as_it_is():
    assert (
        _describe_failure(DraftRefused("cummax has no kernel"), PROBLEM) == "cummax has no kernel"
    )


def test_sizes_that_are_equal_but_not_written_alike_split_a_node(monkeypatch):
    """Torch 2.11 compared the texts of sizes there, and ended in an assertion."""
    from torch._inductor import tiling_utils
    from torch._inductor.sizevars import SizeVarAllocator
    from torch._inductor.virtualized import V

    def by_text(node, pointwise, reduced, none_if_not_divisible=False):
        assert sympy.prod(node._body.sizes[0]) == pointwise
        return "by text"

    a, b = sympy.symbols("a b", positive=True, integer=True)
    written = [a, b - 2]
    body = SimpleNamespace(sizes=(written, []), iter_vars=["i", "j"], reduce_vars=[])
    node = SimpleNamespace(_body=body)
    monkeypatch.setattr(tiling_utils, "get_pw_red_splits", by_text)
    inductor_patches._known_splits()
    with V.set_graph_handler(SimpleNamespace(sizevars=SizeVarAllocator())):
        with pytest.raises(AssertionError):
            by_text(node, sympy.expand(a * (b - 2)), 1)
        found = tiling_utils.get_pw_red_splits(
            node, sympy.expand(a * (b - 2)), sympy.S.One, none_if_not_divisible=True
        )
        assert found == ((["i", "j"], written), ([], []))


DRAWING = """
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(32, 4, dropout=0.1)

    def forward(self, x):
        noise = {drawn}
        return torch.relu(x) + {shown}


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("drawn", "operator"), [
    ("torch.bernoulli(torch.sigmoid(x))", "bernoulli"), ("torch.empty_like(x).normal_()", "normal"),
    ("torch.randn(x.shape, generator=torch.Generator().manual_seed(3))", "randn"),
    ("F.gumbel_softmax(x)", "exponential"),
    ("torch.distributions.Normal(x, 1.0).rsample()", "normal"), ("random.random()", "random.random"),
    ("F.dropout(x, 0.5)", "dropout in training mode"), ("self.attend(x, x, x)[0]", "dropout in training mode"),
    ("torch.randint(0, 3, (1,)).item()", "randint"),
])  # fmt: skip
def test_random_numbers_that_forward_shows_are_refused_by_their_operator_and_line(
    drafter, drawn, operator
):
    problem = Problem(name="drawing", source=DRAWING.format(drawn=drawn, shown="noise"))
    told = drafter.draft(problem).refused
    assert told.startswith(f"{operator} draws random numbers at line 15 (noise = {drawn})"), told


@pytest.mark.parametrize(
    "drawn", ["torch.randn_like(x)", "torch.zeros_like(torch.rand(x.shape)).bernoulli_()"]
)
def test_random_numbers_that_nothing_shows_hinder_no_draft(drafter, drawn):
    assert drafter.draft(
        Problem(name="unused", source=DRAWING.format(drawn=drawn, shown="1"))
    ).usable


def test_a_class_of_inductor_among_the_locals_hides_no_reason():
    class Kernel:
        snodes = staticmethod(len)

    Kernel.__module__ = "torch._inductor.scheduler"

    def lowered(kernel):
        raise AssertionError

    assert operator_of(failed(lowered, Kernel())) == ""


@pytest.mark.slow
@pytest.mark.nightly
def test_numpy_in_forward_is_refused_with_what_to_do_instead(drafter):
    source = NUMPY
    refused = drafter.draft(Problem(source=source, name="numpy")).refused
    assert refused == (
        "forward computes with numpy, on the CPU at line 9 (y = np.tanh(x.cpu().numpy())): write it with functions "
        "of torch"
    )


NUMPY = """
import numpy as np
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = np.tanh(x.cpu().numpy())
        return torch.from_numpy(y)


def get_inputs():
    return [torch.randn(16, 20)]


def get_init_inputs():
    return []
"""
