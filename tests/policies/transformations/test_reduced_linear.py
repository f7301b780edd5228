"""A linear layer whose rows are reduced is one launch, and right by the judge; rows that do not fit are left alone."""

import pytest

from kernelwright.policies.transformations.draft import may_transform
from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn
batch, features, hidden = 4096, 1024, {hidden}
CPU_SIZES = {{"batch": 21, "features": 67, "hidden": 37}}
class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        {layer}
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(batch, features)]
def get_init_inputs():
    return [features, hidden]
"""
NORMED = """self.linear = nn.Linear(features, hidden)
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)"""
LINEAR = "self.linear = nn.Linear(features, hidden)"
WEIGHT = "self.weight = nn.Parameter(torch.randn(features, hidden))"
PROBLEMS = {
    "softmax": (LINEAR, "torch.softmax(self.linear(x) * 0.5, dim=1)"),
    "logsumexp": (LINEAR, "torch.logsumexp(self.linear(x) / 3.0, dim=1, keepdim=True)"),
    "maximum": (WEIGHT, "torch.max(torch.sigmoid(x @ self.weight), dim=1)[0]"),
    "layer norm": (NORMED, "self.norm(torch.relu(self.linear(x)))"),
    "layer norm without weights": (
        LINEAR,
        "nn.functional.layer_norm(self.linear(x), self.linear.bias.shape)",
    ),
    "RMS norm": (
        NORMED,
        "nn.functional.rms_norm(self.linear(x), self.norm.weight.shape, self.norm.weight)",
    ),
    "sum of a function": (LINEAR, "torch.relu(self.linear(x) - 0.25).sum(dim=-1)"),
}


def source_of(layer, body, hidden=256):
    return FRAME.format(layer=layer, body=body, hidden=hidden)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_layer_and_its_reduction_are_one_launch(evaluator, name):
    source = source_of(*PROBLEMS[name])
    assert may_transform(source)
    made = answer(source)
    assert made.get("source"), made["refused"]
    report = evaluator.evaluate(
        Problem(name="reduced", source=source), made["source"], Options(seed=5)
    )
    assert report.correct, report.explanation
    assert [k.launches for k in report.compile.kernels] == [1]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            source_of(LINEAR, "torch.softmax(self.linear(x), dim=1)", hidden=8192),
            "does not fit into a block",
        ),
        (source_of(LINEAR, "torch.softmax(self.linear(x), dim=0)"), "not the last of two axes"),
        (
            source_of(LINEAR, "torch.softmax(torch.cumsum(self.linear(x), 1), dim=1)"),
            "cumsum is not written",
        ),
    ],
)
def test_anything_else_is_left_to_the_compiler(source, why):
    assert why in answer(source)["refused"]
