"""The float64 reference is the same computation: the same masks, the same drawn states, only wider."""

import pytest
import torch

from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64
from kernelwright.tools.references.reference import Reference

FORWARDS = {
    "dropout": ("self.drop = nn.Dropout(0.4)", "self.drop(x) + F.dropout(x, 0.2, training=True)"),
    "a state drawn while it runs": (
        "self.net = nn.LSTM(16, 8)",
        "self.net(x[None], (torch.randn(1, 32, 8), torch.randn(1, 32, 8)))[0]",
    ),
    "a state that is no buffer": (
        "self.state = torch.randn(32, 16)",
        "x @ self.state.T.to(x.device)",
    ),
    "noise like its input": (
        "",
        "x + torch.randn_like(x) * torch.rand(16) + torch.arange(16) + torch.zeros(16)",
    ),
    "a mask and a constant": (
        "",
        "torch.where(torch.rand(32, 16) > 0.5, x, torch.full((1,), 0.3))",
    ),
    "its own double": ("", "x.double().float()"),
    "a weight that a hook computes": (
        "self.linear = torch.nn.utils.weight_norm(nn.Linear(16, 8))",
        "self.linear(x)",
    ),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_eager_lies_within_rounding_of_float64(name):
    init, forward = FORWARDS[name]
    source = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(32, 16)]
def get_init_inputs():
    return []
"""
    reference = Reference(Problem(name="made", source=source), "cpu")
    model, inputs = reference.model(1), reference.inputs(2)
    (eager,), (exact,) = (
        reference.run(model, inputs, 3),
        reference.run(model_in_float64(model), inputs_in_float64(inputs), 3),
    )
    measured = measure(eager, eager, exact)
    assert measured.tolerance.rms < 1e-6
    assert eager.dtype == torch.float32


class Counting(torch.nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.calls, self.kept = 0, kept

    def forward(self, x):
        self.calls += 1
        self.register_buffer("last", x)
        return x * self.calls


@pytest.mark.parametrize("kept", [2.0, None, [1]], ids=["plain values", "nothing", "a list"])
def test_what_a_wider_copy_keeps_is_its_own(kept):
    model = Counting(kept)
    wide = model_in_float64(model)
    wide(torch.ones(2, dtype=torch.float64))
    assert (model.calls, wide.calls, wide.kept) == (0, 1, kept)
    assert (list(model.state_dict()), list(wide.state_dict())) == ([], ["last"])
    assert kept is None or isinstance(kept, float) or wide.kept is not model.kept
