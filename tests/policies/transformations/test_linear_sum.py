"""The sum of a linear layer has its weights summed first: right by the judge, on problems that can tell it."""

import pytest

from kernelwright.policies.transformations.draft import ALGEBRA_MARK, may_transform
from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.manifests.measuring import measure_manifest
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn
batch, features, hidden = 1024, 8192, 8192
scale = 1.5
CPU_SIZES = {{"batch": 5, "features": 67, "hidden": 41}}
class Model(nn.Module):
    def __init__(self, features, hidden, scale):
        super().__init__()
        {layer}
        self.scale = scale
    def forward(self, x):
        {body}
def get_inputs():
    return [torch.randn(batch, features)]
def get_init_inputs():
    return [features, hidden, scale]
"""
LINEAR = "self.linear = nn.Linear(features, hidden)"
WEIGHT = "self.weight = nn.Parameter(torch.randn(hidden, features))"
TURNED = "self.weight = nn.Parameter(torch.randn(features, hidden))"

PROBLEMS = {
    "sum": (LINEAR, "return self.linear(x).sum(dim=1)"),
    "mean of a shifted layer": (LINEAR, """x = self.linear(x) * 0.5 + 2.0
        return torch.mean(x, dim=1, keepdim=True) * self.scale"""),
    "weight transposed": (WEIGHT, """x = torch.matmul(x, self.weight.T) / 2
        return torch.sum(x, dim=1, keepdim=True) * self.scale"""),
    "weight as it stands": (TURNED, "return (x @ self.weight - self.scale).sum(-1) / 3.0"),
    "no bias": (LINEAR.replace("hidden)", "hidden, bias=False)"), "return self.linear(x).sum(dim=-1, keepdim=True)"),
    "reductions over one element": (LINEAR, """x = torch.sum(self.linear(x), dim=1, keepdim=True)
        x = torch.max(x, dim=1, keepdim=True)[0]
        return torch.logsumexp(x, dim=1, keepdim=True)"""),
}  # fmt: skip

REFUSED = {
    "a function between": (
        LINEAR,
        "return torch.relu(self.linear(x)).sum(dim=1)",
        "does not commute",
    ),
    "the sum of the batch": (LINEAR, "return self.linear(x).sum(dim=0)", "does not commute"),
    "a maximum of many": (LINEAR, "return self.linear(x).amax(dim=1)", "does not commute"),
    "no sum": (LINEAR, "return self.linear(x) * 2.0 + x.max()", "no plain number"),
    "the layer used twice": (
        LINEAR,
        "y = self.linear(x)\n        return (y * y).sum(dim=1)",
        "no plain number",
    ),
}


def problem_of(layer, body):
    return Problem(name="summed", source=FRAME.format(layer=layer, body=body))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_weights_are_summed_first_and_the_judge_finds_it_right(evaluator, name):
    problem = problem_of(*PROBLEMS[name])
    assert may_transform(problem.source)
    made = answer(problem.source)
    assert made.get("source"), made["refused"]
    assert made["algebra"]
    assert ALGEBRA_MARK in made["source"].splitlines()
    report = evaluator.evaluate(problem, made["source"], Options(seed=4))
    assert report.correct, report.explanation
    assert sorted(k.name for k in report.compile.kernels) == [
        "row_kernel",
        "weight_join_kernel",
        "weight_part_kernel",
    ]


@pytest.mark.slow
@pytest.mark.nightly
def test_what_is_gained_is_no_gap_of_the_problem(evaluator):
    """By the manifest's rule the problem tells every wrong answer from the right one, one that leaves the bias out or
    answers for other inputs among them: the gain is algebra.
    """
    problem = problem_of(*PROBLEMS["weight transposed"])
    assert (
        measure_manifest(problem, sizes={"batch": 16, "features": 67, "hidden": 41}).degenerate
        == ()
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_a_summed_weight_that_is_wrong_is_seen(evaluator):
    problem = problem_of(*PROBLEMS["sum"])
    made = answer(problem.source)["source"]
    wrong = made.replace("total * factor", "total * factor * 1.001")
    assert wrong != made
    assert not evaluator.evaluate(problem, wrong, Options(seed=4, targets=())).correct


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_does_not_commute_is_left_alone(name):
    layer, body, why = REFUSED[name]
    assert why in answer(problem_of(layer, body).source)["refused"]
