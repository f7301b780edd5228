"""Weights of other names: where their values lie in a candidate's tensors, and what is said where they lie nowhere."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import (
    PreparedProblem,
    expected_outputs,
    prepare_problem,
)
from kernelwright.tools.expected.weights import (
    Position,
    find_values,
    require_visible_weights,
    weights_of,
)
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
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
NORM = "self.norm = nn.LayerNorm(7)"
LINEAR = "self.linear = nn.Linear(7, 5)"
SCALE = "self.scale = nn.Parameter(torch.randn(1))"
DRAWN_BUFFER = "self.register_buffer('basis', torch.randn(7, 7))"
TABLE = "self.register_buffer('table', torch.arange(7.0))"
DRAWN_BYTES = "self.register_buffer('bytes', torch.randint(-8, 8, (7,), dtype=torch.int8))"


def prepared(made: str, answer: str) -> PreparedProblem:
    problem = Problem(name="reference", source=REFERENCE.format(made=made, answer=answer))
    return prepare_problem(problem, "cpu", 3)


def require_all(made: str, answer: str) -> None:
    problem = prepared(made, answer)
    require_visible_weights(
        problem, expected_outputs(problem, Draw.OWN, 5), tuple(weights_of(problem))
    )


@pytest.mark.parametrize(
    ("made", "answer", "named"),
    [
        (NORM, "self.norm(x)", "norm.weight, norm.bias"),
        (LINEAR, "self.linear(x)", "linear.weight, linear.bias"),
        (SCALE, "x * self.scale", "scale"),
        (DRAWN_BUFFER, "x @ self.basis", "basis"),
        (DRAWN_BYTES, "x * self.bytes", "bytes"),
    ],
)
def test_weights_that_the_answer_needs_and_nobody_holds_are_named(made, answer, named):
    with pytest.raises(Failed) as failed:
        require_all(made, answer)
    assert failed.value.failure.fault is Fault.UNCHECKED
    assert f"the reference's {named}," in failed.value.failure.message


@pytest.mark.parametrize(
    ("made", "answer"), [(NORM, "x + 0 * self.norm(x)"), (SCALE, "x"), (TABLE, "x * self.table")]
)
def test_weights_that_the_answer_does_not_need_and_constants_of_the_problem_are_no_matter(
    made, answer
):
    require_all(made, answer)


def test_weights_are_parameters_running_statistics_and_what_each_seed_draws_anew():
    made = "; ".join([LINEAR, TABLE, DRAWN_BUFFER, DRAWN_BYTES, "self.norm = nn.BatchNorm1d(7)"])
    assert set(weights_of(prepared(made, "self.linear(self.norm(x))"))) == {
        "linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "basis",
        "bytes",
    }  # fmt: skip


def test_a_weight_is_found_as_a_whole_before_it_is_found_as_a_part():
    weight = torch.randn(4, 6)
    tensors = {1: torch.cat([torch.randn(2, 6), weight]), 5: weight.clone(), 7: torch.randn(4, 6)}
    assert find_values({"w": weight}, tensors) == {"w": Position(5)}


@pytest.mark.parametrize(
    ("lay", "shape"),
    [
        (lambda w: torch.cat([torch.randn(2, 6), w, torch.randn(1, 6)]), "rows of a larger one"),
        (lambda w: torch.cat([torch.randn(4, 3), w], 1), "columns of a larger one"),
        (lambda w: w.t().contiguous(), "transposed"),
        (lambda w: torch.stack([torch.randn(4, 6), w], -1), "interleaved"),
        (lambda w: w.reshape(4, 6, 1), "with another dimension"),
        (lambda w: w.reshape(-1), "flat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_weight_is_found_wherever_it_lies_in_a_tensor(lay, shape):
    weight = torch.randn(4, 6)
    tensor = lay(weight)
    position = find_values({"w": weight}, {0: torch.randn(30, 30), 3: tensor})["w"]
    assert position.tensor == 3
    assert torch.equal(
        tensor.reshape(-1)[position.offset :].as_strided((4, 6), position.stride), weight
    ), shape


def test_constants_are_matched_by_shape_in_order_with_parameters_first():
    ones, zeros = torch.ones(7), torch.zeros(7)
    tensors = {
        0: torch.zeros(7),
        1: torch.ones(7),
        2: torch.zeros(7),
        3: torch.zeros(9),
        4: torch.ones(7),
    }
    positions = find_values({"a": ones, "b": zeros, "c": ones}, tensors, preferred=[4, 2])
    assert [positions[name].tensor for name in "abc"] == [4, 2, 1]


def test_a_constant_is_not_found_inside_of_a_larger_constant():
    assert find_values({"b": torch.zeros(7)}, {0: torch.zeros(70)}) == {}


def test_a_mean_or_another_type_of_a_weight_holds_none_of_it():
    weight = torch.randn(4, 6)
    assert find_values({"w": weight}, {0: weight.mean(0), 1: weight.half(), 2: weight * 2}) == {}
