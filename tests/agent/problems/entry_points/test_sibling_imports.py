"""A file that imports from files beside it becomes one text."""

from __future__ import annotations

import pytest
import torch

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.reference import Reference

BLOCK = """
import torch
from torch import nn

from .activations import gelu as act
from . import constants
import activations


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return act(self.layer(x)) + activations.gelu(x) * constants.BASE


if __name__ == "__main__":
    print(Block(16)(torch.randn(4, 16)).shape)
"""
ACTIVATIONS = """
import torch

from .constants import BASE


def gelu(x):
    return x * torch.sigmoid(BASE * x)


def unused(x):
    return gelu(x) + torch.zeros_like(x)
"""


def test_the_text_holds_what_the_file_imports_from_its_folder(tmp_path):
    (tmp_path / "block.py").write_text(BLOCK)
    (tmp_path / "activations.py").write_text(ACTIVATIONS)
    (tmp_path / "constants.py").write_text("BASE = 1.702\n")
    problem = find_by_name(tmp_path / "block.py")
    reference = Reference(problem, "cpu")
    model, (x,) = reference.model(0), reference.inputs(0)
    (out,) = reference.run(model, [x], 0)
    hidden = model.layer(x)
    assert torch.allclose(
        out, hidden * torch.sigmoid(1.702 * hidden) + x * torch.sigmoid(1.702 * x) * 1.702
    )


def test_two_definitions_of_one_name_and_circles_are_refused(tmp_path):
    (tmp_path / "block.py").write_text(BLOCK.replace("class Block", "BASE = 2\n\n\nclass Block"))
    (tmp_path / "activations.py").write_text(ACTIVATIONS)
    (tmp_path / "constants.py").write_text("BASE = 1.702\n")
    with pytest.raises(ProblemError, match="defines BASE too: give one another name"):
        find_by_name(tmp_path / "block.py")
    (tmp_path / "block.py").write_text(BLOCK)
    (tmp_path / "constants.py").write_text("from .activations import gelu\n\nBASE = 1.702\n")
    with pytest.raises(ProblemError, match="import one another in a circle"):
        find_by_name(tmp_path / "block.py")
    (tmp_path / "constants.py").write_text("base = 1.702\n")
    with pytest.raises(ProblemError, match=r"constants\.py, which it imports, has no BASE"):
        find_by_name(tmp_path / "block.py")
