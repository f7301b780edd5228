"""The problem of a problem's gradients: its text, its facts, and what has no gradients that could be judged."""

from __future__ import annotations

import pytest

from kernelwright.agent.gradients.gradient_facts import gradient_facts
from kernelwright.agent.gradients.gradient_problem import gradient_problem
from kernelwright.tools.problem import Problem, ProblemError, inner_integers

LAYER = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.norm = nn.BatchNorm1d(8)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x, i):
        return {"y": self.norm(x), "i": i}


def get_inputs():
    return [torch.randn(5, 8), torch.arange(5)]


def get_init_inputs():
    return []
"""


def problem_of(body: str, inputs: str = "torch.randn(5, 8)", constructor: str = "pass") -> Problem:
    source = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {constructor}\n\n    def forward(self, x):\n        {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Problem(name="layer.py", source=source)


def test_gradients_of_inputs_and_reached_weights_are_a_problem_with_the_same_sizes():
    problem = Problem(name="layer.py", source=LAYER)
    facts = gradient_facts(problem)
    assert facts.inputs == ("x",)
    assert facts.weights == ("norm.weight", "norm.bias")
    assert facts.outputs == ("output['y']",)
    assert facts.changes_buffers
    assert facts.agree
    gradients = gradient_problem(problem, facts)
    assert gradients.name == "layer.py:gradients"
    assert {"x.shape[0]", "x.shape[1]"} <= set(inner_integers(gradients.source))


def test_a_straight_through_estimate_differs_from_differences():
    facts = gradient_facts(problem_of("return x + (x.round() - x).detach() + 0.1 * x"))
    assert facts.difference is not None
    assert not facts.agree


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (problem_of("return self.drop(x)", constructor="self.drop = nn.Dropout(0.5)"), "Dropout"),
        (problem_of("return x.argmax(-1)"), "no output"),
        (problem_of("return x.add_(1.0)"), "writes to its inputs"),
        (problem_of("return x[0]", inputs="[torch.randn(5, 8)]"), "list"),
    ],
)
def test_a_reference_without_gradients_to_judge_is_refused_in_one_line(problem, words):
    with pytest.raises(ProblemError, match=words) as error:
        gradient_facts(problem)
    assert "\n" not in str(error.value)
