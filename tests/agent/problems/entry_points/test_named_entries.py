"""Classes and functions by their names: of installed packages, of files with several, of notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.problem import Problem, ProblemError, module_integers
from kernelwright.tools.references.reference import Reference

BLOCKS = """
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    width: int = 64
    rate: float = 0.5


class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Gate(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.width, 2 * config.width)
        self.rate = config.rate

    def forward(self, x, *, scale=1.0):
        a, b = self.up(x).chunk(2, -1)
        return a * torch.sigmoid(b) * scale * self.rate


def shifted(x, shift, scale=2.0):
    return x * scale + shift
"""


def run(problem: Problem) -> tuple[list, list, torch.nn.Module]:
    """Returns outputs, inputs and the module."""
    reference = Reference(problem, "cpu")
    model, inputs = reference.model(0), reference.inputs(0)
    return reference.run(model, inputs, 0), inputs, model


@pytest.mark.parametrize(
    ("name", "init", "inputs", "shape"),
    [
        ("torch.nn:GELU", [], ["4x64"], (4, 64)),
        ("torch.nn.GELU", ["approximate=tanh"], ["input=4x64"], (4, 64)),
        ("torch.nn.functional:gelu", ["approximate='tanh'"], ["4x64"], (4, 64)),
        ("torch.softmax", ["dim=-1"], ["4x64"], (4, 64)),
        ("torch.nn:Linear", ["64", "out_features=32"], ["5x64"], (5, 32)),
        ("torch.nn:Embedding", ["100", "32"], ["input=4x7:int64<100"], (4, 7, 32)),
        ("torch.where", [], ["4x8:bool", "4x8", "8"], (4, 8)),
        ("torch.cat", ["dim=1"], ["[4x8,4x3]"], (4, 11)),
        ("torch.nn:Conv2d", ["3", "8", "kernel_size=3", "padding=1"], ["2x3x9x9"], (2, 8, 9, 9)),
    ],
)
def test_a_class_or_function_of_a_package_is_a_problem(name, init, inputs, shape):
    problem = find_by_name(name, init=init, inputs=inputs)
    (out,), _, _ = run(problem)
    assert problem.name == name
    assert out.shape == shape


def test_a_layer_of_transformers_takes_its_configuration_and_the_dtype_of_its_input(tmp_path):
    name = "transformers.models.llama.modeling_llama:LlamaMLP"
    (tmp_path / "llama.json").write_text(json.dumps({"hidden_size": 128, "intermediate_size": 96}))
    for config in (
        "LlamaConfig(hidden_size=128, intermediate_size=96)",
        f"LlamaConfig(@{tmp_path}/llama.json)",
    ):
        problem = find_by_name(name, init=[f"config={config}"], inputs=["x=2x7x128:bf16"])
        (out,), _, model = run(problem)
        assert (out.shape, out.dtype) == ((2, 7, 128), torch.bfloat16)
        assert [n for n, _ in model.named_parameters()] == [
            "gate_proj.weight",
            "up_proj.weight",
            "down_proj.weight",
        ]
        assert module_integers(problem.source) == {
            "hidden_size": 128,
            "intermediate_size": 96,
            "x_0": 2,
            "x_1": 7,
        }


@pytest.mark.parametrize(
    ("name", "init", "inputs", "message"),
    [
        (
            "torch.nn:GELU",
            [],
            [],
            "torch.nn:GELU needs inputs, it takes input: name each, such as --input",
        ),
        ("torch.nn:Gelu", [], ["4"], "torch.nn has no Gelu: near names are GELU"),
        (
            "torch.nn:Linear",
            [],
            ["4x8"],
            "is built with in_features, out_features.*--init in_features=64",
        ),
        ("torch.nn:GELU", [], ["y=4x8"], "takes input: name each input"),
        ("torch.nn:Parameter", [], ["4"], "no torch.nn.Module: name a module, or a function"),
        ("torch.pi", [], ["4"], "is a float: name a class of modules or a function"),
        (
            "nowhere.blocks:Block",
            [],
            ["4"],
            "no package nowhere is installed here: pip install it, or name a file",
        ),
        ("torch.nowhere:Block", [], ["4"], "no module torch.nowhere here"),
        ("torch.nn:GELU", [], ["4x8:floaty"], "no dtype floaty: choose float32"),
        ("torch.nn:GELU", [], ["4x8:f32<3"], "range of integers"),
        ("torch.nn:GELU", [], ["open('x')"], "write NAME=SHAPE:DTYPE"),
        (
            "torch.nn:GELU",
            ["approximate=__import__('os').getcwd() + 'x'"],
            ["4"],
            "neither a literal nor a call",
        ),
        ("torch.nn:GELU", ["a=1", "2"], ["4"], "without a name come before"),
        ("torch.nn:GELU", ["a=1", "a=2"], ["4"], "names a twice"),
        (
            "torch.nn:Linear",
            ["Config(8)", "4"],
            ["4"],
            "knows no Config: quote it where it is a text",
        ),
        ("torch.nn:Linear", ["@nowhere.json"], ["4"], "nowhere.json cannot be read"),
        ("fused softmax", [], ["4x8"], "--input go with a class or function"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_line_that_says_what_to_do(
    name, init, inputs, message
):
    with pytest.raises(ProblemError, match=message) as raised:
        find_by_name(name, init=init, inputs=inputs)
    assert "\n" not in str(raised.value)


def test_a_file_with_several_classes_is_asked_for_one_by_name(tmp_path: Path):
    file = tmp_path / "blocks.py"
    file.write_text(
        BLOCKS
        + "\n\nnorm = Norm(8)\nnorm(torch.randn(3, 8))\nshifted(torch.randn(2, 5), torch.randn(5))\n"
    )
    (out,), (x,), _ = run(find_by_name(f"{file}:Norm"))
    assert out.shape == (3, 8)
    (out,), (x, shift), _ = run(find_by_name(f"{file}:shifted"))
    assert torch.equal(out, x * 2 + shift)
    gate = find_by_name(
        f"{file}:Gate", init=["config=Config(width=32, rate=0.25)"], inputs=["x=4x32", "scale=0.5"]
    )
    (out,), (x, scale), model = run(gate)
    assert (out.shape, scale, model.rate) == ((4, 32), 0.5, 0.25)
    (out,), (x, _), _ = run(
        find_by_name(f"{file}:shifted", init=["scale=3.0"], inputs=["4x8", "8"])
    )
    assert out.shape == (4, 8)
    with pytest.raises(
        ProblemError, match="it defines no Block: it has Config, Norm, Gate, shifted"
    ):
        find_by_name(f"{file}:Block")
    with pytest.raises(
        ProblemError, match="__init__ of Gate takes config: name each argument with --init"
    ):
        find_by_name(f"{file}:Gate", inputs=["4x32"])


def test_a_notebook_is_read_without_its_magics_and_broken_cells(tmp_path: Path):
    cells = [
        ("markdown", "# Norms"),
        ("code", ["%matplotlib inline\n", "!pip install nothing\n", "import torch\n"]),
        ("code", BLOCKS),
        ("code", "%%bash\nls"),
        ("code", "%%time\nnorm = Norm(16)\nx = torch.randn(2, 3, 16)\nnorm(x).shape"),
        ("code", "this is no Python"),
        ("code", "norm?\nnorm.weight"),
    ]
    content = {
        "cells": [{"cell_type": kind, "source": source} for kind, source in cells],
        "nbformat": 4,
    }
    file = tmp_path / "norms.ipynb"
    file.write_text(json.dumps(content))
    (out,), _, _ = run(find_by_name(file))
    assert out.shape == (2, 3, 16)
    (out,), _, _ = run(find_by_name(f"{file}:Gate", init=["config=Config()"], inputs=["3x64"]))
    assert out.shape == (3, 64)
    file.write_text("{}")
    with pytest.raises(ProblemError, match="no notebook of version 4"):
        find_by_name(file)
