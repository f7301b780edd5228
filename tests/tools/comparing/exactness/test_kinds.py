"""Each output of a reference is exact, rounded or stepped by the operators that it goes through."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.kind_tracker import KindTracker
from kernelwright.tools.expected.exactness.exact_values import kind_of_output
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

EXACT, ROUNDED, STEPPED = ArithmeticKind.EXACT, ArithmeticKind.ROUNDED, ArithmeticKind.STEPPED


def _scattered_into_zeros(x):
    out = torch.zeros(8, 40)
    out[:, :5] = x[:, :5] * 3
    return out


def _decided_by_the_host(x):
    return x if (x * 2).sum().item() > 0 else -x


CASES = {
    "row maximum": (lambda x: x.max(-1), [EXACT, EXACT]),
    "largest three": (lambda x: x.topk(3), [EXACT, EXACT]),
    "largest three probabilities": (lambda x: x.softmax(-1).topk(3), [ROUNDED, STEPPED]),
    "sort": (lambda x: x.sort(-1), [EXACT, EXACT]),
    "rows by the place of a column": (lambda x: x[x[:, 0].argsort()], [EXACT]),
    "rows by the place of a rounded column": (lambda x: x[(x * 3)[:, 0].argsort()], [STEPPED]),
    "one-hot of the largest": (lambda x: F.one_hot(x.argmax(-1), 40).float(), [EXACT]),
    "floor of a quotient by an operator": (lambda x: (x // 0.3).to(torch.int64), [EXACT]),
    "floor of a rounded quotient": (lambda x: torch.floor(x / 0.3).to(torch.int64), [STEPPED]),
    "quotient cut": (lambda x: torch.div(x, 0.3, rounding_mode="trunc"), [STEPPED]),
    "conversion to nearest": (lambda x: x.to(torch.bfloat16), [EXACT]),
    "conversion to eight bits": (lambda x: x.to(torch.float8_e4m3fn), [ROUNDED]),
    "comparison": (lambda x: x > 0.5, [EXACT]),
    "comparison of a product": (lambda x: x * 3 > 0.5, [STEPPED]),
    "count": (lambda x: (x > 0).sum(-1), [EXACT]),
    "pooling": (lambda x: F.max_pool1d(x, 2), [EXACT]),
    "a product written into zeros": (_scattered_into_zeros, [ROUNDED]),
    "a branch of the host": (_decided_by_the_host, [STEPPED]),
    "activation": (F.silu, [ROUNDED]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_an_output_follows_from_its_operators(name):
    run, kinds = CASES[name]
    x = torch.randn(8, 40)
    with KindTracker([x]) as tracker:
        made = run(x)
    outputs = made if isinstance(made, tuple) else [made]
    assert [tracker.kind_of(output) for output in outputs] == kinds


REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(40))
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(8, 40)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("x * (x > 0.3)", EXACT),
        ("x * 0.5", EXACT),
        ("x * self.scale", ROUNDED),
        ("x * 0.3", ROUNDED),
        ("torch.from_numpy(x.numpy() / 3)", ROUNDED),
        ("x // 0.1 > 5", EXACT),
        ("(x.double() / 3).float()", ROUNDED),
        ("(x / 3).half().float()", ROUNDED),
    ],
)
def test_an_output_that_no_draw_rounds_is_exact_though_an_operator_might_round(body, kind):
    """A weight of ones rounds nothing, other weights do. What numpy computes is seen to differ from float64."""
    prepared = prepare_problem(Problem(name="rounds", source=REFERENCE.format(body=body)), "cpu", 1)
    expected = expected_outputs(prepared, Draw.OWN, 7)
    assert kind_of_output(prepared, expected, 0, torch.zeros_like(expected.eager[0])) is kind
