"""Modules, classes and functions that a program holds, as problems."""

from __future__ import annotations

import collections
import dataclasses
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kernelwright
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.reference import Reference

FACTOR = 3.0
X = torch.randn(4, 16)


@dataclasses.dataclass
class Config:
    width: int = 16


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


class Norm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)


class Block(nn.Module):
    def __init__(self, config, depth=2):
        super().__init__()
        self.config, self.depth = config, depth
        self.norm = Norm(config.width)
        self.layers = nn.ModuleList([nn.Linear(config.width, config.width) for _ in range(depth)])

    def forward(self, x, *, scale=1.0):
        x = self.norm(x)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return tripled(x) * scale


class Hidden(nn.Module):
    def __init__(self, mystery):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.shift = len(mystery)

    def forward(self, x):
        return self.layer(x) + self.shift


def shifted(x, y, alpha=2.0):
    return tripled(x) + alpha * torch.relu(y)


def run(problem: Problem) -> tuple[list, list, torch.nn.Module]:
    reference = Reference(problem, "cpu")
    model, inputs = reference.model(0), reference.inputs(0)
    return reference.run(model, inputs, 0), inputs, model


@pytest.mark.parametrize(
    ("value", "inputs", "init"),
    [
        (Block(Config(), 3), [X], None),
        (Block(Config()).eval().bfloat16(), {"x": X.bfloat16(), "scale": 0.5}, None),
        (Block, [X], [Config(width=16)]),
        (Norm(16), [X], None),
        (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4, bias=False)), X, None),
        (nn.Sequential(collections.OrderedDict(a=nn.Linear(16, 8), b=Norm(8))), X, None),
        (nn.Conv2d(3, 8, 3, padding=1), [torch.rand(2, 3, 8, 8)], None),
        (torch.compile(Norm(16)), [X], None),
    ],
)
def test_a_module_is_rebuilt_with_the_same_weights_by_name_and_shape(value, inputs, init):
    problem = kernelwright.find_problem(value, inputs, init=init)
    outputs, _, model = run(problem)
    original = getattr(value, "_orig_mod", value)
    original = original(*init) if isinstance(original, type) else original
    assert {n: (p.shape, p.dtype) for n, p in model.named_parameters()} == {
        n: (p.shape, p.dtype) for n, p in original.named_parameters()
    }
    assert model.training == original.training
    expected = (
        original(**inputs)
        if isinstance(inputs, dict)
        else original(*(inputs if isinstance(inputs, list) else [X]))
    )
    assert outputs[0].shape == expected.shape


def test_a_function_of_a_program_comes_with_everything_that_it_names():
    (out,), (x, y), _ = run(kernelwright.find_problem(shifted, (X, X)))
    assert torch.allclose(out, x * 3.0 + 2.0 * torch.relu(y))
    (out,), (x, y), _ = run(kernelwright.find_problem(shifted, {"x": X, "y": X, "alpha": 0.5}))
    assert torch.allclose(out, x * 3.0 + 0.5 * torch.relu(y))
    assert run(kernelwright.find_problem(F.gelu, [X]))[0][0].shape == (4, 16)
    assert run(kernelwright.find_problem(torch.softmax, [X, -1]))[0][0].shape == (4, 16)


def test_inputs_are_drawn_with_the_range_that_the_examples_have():
    examples = [
        torch.randint(5, 9, (4, 16)),
        torch.rand(16) * 40,
        torch.zeros(4, 16, dtype=torch.bool),
    ]

    problem = kernelwright.find_problem(chosen, examples)
    _, (ids, positive, mask), _ = run(problem)
    assert ids.min() >= 5
    assert ids.max() <= 8
    assert positive.min() >= 0
    assert mask.dtype == torch.bool


def chosen(ids, positive, mask):
    return torch.where(mask, ids * positive, positive)


@pytest.mark.parametrize(
    ("value", "inputs", "message"),
    [
        (Hidden("abc"), [torch.randn(2, 4)], r"how this Hidden was built cannot be read.*init=\{"),
        (lambda x: x * 2, [X], "a lambda has no name: write it as a function with def"),
        (functools.partial(shifted, alpha=3.0), [X, X], "write a function that calls it"),
        (nn.GELU(), None, r"GELU needs example inputs: give them"),
        (3, [X], "int is no problem: give a module"),
        (tripled, [{1, 2}], "the input x is a set: give tensors"),
    ],
)
def test_what_no_text_can_hold_is_refused_with_a_line_that_says_what_to_do(value, inputs, message):
    with pytest.raises(ProblemError, match=message):
        kernelwright.find_problem(value, inputs)


def test_a_name_takes_the_arguments_of_the_command_line():
    problem = kernelwright.find_problem(
        "torch.nn:Linear", ["4x8"], init={"in_features": 8, "out_features": 4}
    )
    assert run(problem)[0][0].shape == (4, 4)
    assert kernelwright.find_problem(problem) is problem


def test_a_function_inside_of_a_function_comes_with_the_values_around_it():
    scale = 4

    def scaled(x):
        return x * scale

    reference = Reference(kernelwright.find_problem(scaled, (X,)), "cpu")
    inputs = reference.inputs(0)
    assert torch.equal(reference.run(reference.model(0), inputs, 0)[0], inputs[0] * 4)


def test_a_class_inside_of_a_block_is_a_problem():
    if FACTOR:

        class Inner(nn.Module):
            def forward(self, x):
                return torch.relu(x)

    reference = Reference(kernelwright.find_problem(Inner(), (X,)), "cpu")
    inputs = reference.inputs(0)
    assert torch.equal(reference.run(reference.model(0), inputs, 0)[0], inputs[0].relu())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_live_module_is_solved_and_its_kernel_checked(tmp_path):
    module, kernel = Norm(16), tmp_path / "norm_kernel.py"
    solved = kernelwright.solve(
        module,
        (X,),
        output=kernel,
        policy="compiler",
        device="cpu",
        database=str(tmp_path / "runs.db"),
    )
    assert solved.correct, solved.message
    assert kernelwright.check(kernel, module, inputs=(X,), device="cpu").correct
