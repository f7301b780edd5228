"""A constructor that draws from a generator of its own: its numbers are the reference's, buffers or not."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.models.model_state import move_attributes
from kernelwright.tools.report import Fault

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        SET_UP

    def forward(self, x):
        return x * self.scale + self.shift


def get_inputs():
    return [torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(5))]


def get_init_inputs():
    return [WIDTH]
""".replace("WIDTH", "33")
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, scale, shift, out, width, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    exists = column < width
    row = tl.program_id(0) * width
    value = tl.load(x + row + column, mask=exists) * tl.load(scale + column, mask=exists)
    tl.store(out + row + column, value + tl.load(shift + column, mask=exists), mask=exists)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        SET_UP

    def forward(self, x):
        out = torch.empty_like(x)
        width = x.shape[1]
        scale, shift = self.scale.to(x.device), self.shift.to(x.device)
        scale_kernel[(x.shape[0],)](x, scale, shift, out, width, BLOCK=triton.next_power_of_2(width))
        return out
"""
SET_UPS = {
    "buffers": """g = torch.Generator().manual_seed(0)
        self.register_buffer("scale", torch.rand(width, generator=g))
        self.register_buffer("shift", torch.randint(-7, 8, (width,), generator=g).float())""",
    "plain attributes": """g = torch.Generator().manual_seed(3)
        self.scale = torch.randn(width, generator=g)
        self.shift = torch.empty(width).uniform_(-1, 1, generator=g)""",
    "another seed between": """g = torch.Generator().manual_seed(3)
        self.scale = torch.randn(width, generator=g)
        g.manual_seed(4)
        self.shift = torch.randn(width, generator=g)""",
    "torch's own by name": """self.scale = nn.Parameter(torch.randn(width, generator=torch.default_generator))
        self.shift = nn.Parameter(torch.zeros(width))""",
    "an initialiser": """self.shift = nn.Parameter(torch.zeros(width))
        self.scale = nn.Parameter(nn.init.normal_(torch.empty(width), generator=torch.Generator().manual_seed(1)))""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SET_UPS))
def test_a_generator_of_the_constructors_own_gives_its_numbers(evaluator, name):
    problem = Problem(name=name, source=REFERENCE.replace("SET_UP", SET_UPS[name]))
    report = evaluator.evaluate(
        problem, CANDIDATE.replace("SET_UP", SET_UPS[name]), Options(seed=2)
    )
    assert report.correct, report.explanation


def test_another_seed_gives_other_numbers(evaluator):
    problem = Problem(name="seed", source=REFERENCE.replace("SET_UP", SET_UPS["plain attributes"]))
    other = SET_UPS["plain attributes"].replace("manual_seed(3)", "manual_seed(30)")
    report = evaluator.evaluate(problem, CANDIDATE.replace("SET_UP", other), Options(seed=2))
    assert report.failure is not None
    assert report.failure.fault is Fault.MISMATCH


def test_plain_attributes_of_every_module_move():
    """Where a device does not take the generator, a reference is built on the CPU, and `to` moves no attribute."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model[1].table, model[1].name, model.scale = torch.ones(3), "relu", torch.ones(1)
    move_attributes(model, "meta")
    assert (model[1].table.device.type, model.scale.device.type, model[1].name) == (
        "meta",
        "meta",
        "relu",
    )
    assert model[0].weight.device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SET_UPS))
def test_on_a_gpu_numbers_of_a_generator_of_the_cpu_are_drawn_there_and_moved(name):
    problem = Problem(name=name, source=REFERENCE.replace("SET_UP", SET_UPS[name]))
    with Evaluator(device="cuda:0") as evaluator:
        report = evaluator.evaluate(
            problem, CANDIDATE.replace("SET_UP", SET_UPS[name]), Options(seed=2)
        )
    assert report.correct, report.explanation
