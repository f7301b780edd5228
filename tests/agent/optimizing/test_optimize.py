"""A model with kernels: the whole command, patching in place and undoing it."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import kernelwright
from kernelwright.agent.exporting.texts import _patching
from kernelwright.errors import InputError
from tests.agent.command_in_process import agent_here

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)

    def forward(self, x, scale=1.0):
        return x + torch.tanh(self.up(self.norm(x))) * scale


class Stack(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


if __name__ == "__main__":
    stack = Stack(16, 2)
    y = stack(torch.randint(0, 50, (2, 8)))
"""


@pytest.mark.slow
def test_a_model_is_optimized_from_the_command_line(tmp_path):
    (tmp_path / "stack.py").write_text(SOURCE)
    done = agent_here("optimize", "stack.py", "--gradients", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    [region] = result["regions"]
    assert region["kept"]
    assert region["modules"] == ["blocks.0", "blocks.1"]
    assert region["launches_after"] < region["launches_before"]
    assert result["check"]["correct"]
    assert result["check"]["gradients"]
    assert "nothing was timed" in result["notes"][0]
    listed = agent_here("inspect", folder=tmp_path)
    assert "region:block" in listed.stdout

    names: dict = {"__name__": "stack"}
    exec(SOURCE, names)
    model = names["Stack"](16, 2).eval()
    before, tokens = dict(model.state_dict()), torch.randint(0, 50, (2, 8))
    expected = model(tokens)
    kernelwright.load_optimized(model, tmp_path / "stack_optimized")
    assert model.state_dict().keys() == before.keys()
    torch.testing.assert_close(model(tokens), expected)
    with pytest.raises(InputError, match="fit"):
        kernelwright.load_optimized(nn.Linear(2, 2), tmp_path / "stack_optimized")
    kernelwright.restore(model)
    assert not any("forward" in vars(module) for module in model.modules())
    again = agent_here("optimize", "stack.py", folder=tmp_path)
    assert "--out" in again.stderr


class Doubling(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(float(factor)))

    def forward(self, x):
        return x * self.factor


class Operator:
    """Stands for an operator of a package: accepts every call."""

    def remember(self, args, kwargs):
        return ""

    def accepts(self, module, tensors):
        return True

    def __call__(self, x, weights, constructor):
        return x * weights[0] + 1000


def patched_region(paths, inputs=lambda args, kwargs: args):
    return _patching.PatchedRegion(
        kernel=Operator(), paths=paths, inputs=inputs, output=lambda o: o[0], weights=["factor"]
    )


def test_a_patched_module_runs_the_kernel_in_eval_mode_only_and_a_copy_has_its_own_weights():
    model = nn.Sequential(Doubling(2), Doubling(3)).eval()
    x = torch.ones(2)
    _patching.patch(model, [patched_region(["1"])])
    assert model(x).tolist() == [1006.0, 1006.0]
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied[1].factor.fill_(5.0)
    assert copied(x).tolist() == [1010.0, 1010.0]
    assert model(x).tolist() == [1006.0, 1006.0]
    assert model.train()(x).tolist() == [6.0, 6.0]
    assert _patching.restore(model.eval())(x).tolist() == [6.0, 6.0]


def test_a_call_of_another_form_runs_the_module_itself():
    model = Doubling(2).eval()
    _patching.patch(model, [patched_region([""], inputs=lambda args, kwargs: None)])
    assert model(torch.ones(1)).tolist() == [2.0]


def test_a_module_whose_forward_was_replaced_is_not_patched():
    model = Doubling(2).eval()
    model.forward = lambda x: x
    with pytest.raises(ValueError, match="replaced"):
        _patching.patch(model, [patched_region([""])])


def test_a_model_in_training_mode_is_refused(tmp_path):
    with pytest.raises(InputError, match="eval"):
        kernelwright.optimize(Doubling(2), [torch.ones(2)], output=tmp_path / "out")
