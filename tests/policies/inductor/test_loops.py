"""Loops of a problem's text as functions of one step: what they compute stays the same."""

import ast

import pytest
import torch

from kernelwright.policies.inductor.tracing.loop_syntax import loop_names, with_loops
from kernelwright.policies.inductor.tracing.problem_text import ProblemText
from kernelwright.policies.inductor.tracing.sizes import Sizes

HEAD = """
import torch
class Model:
    def forward(self, x, h):
        length = x.shape[1]
"""
BODIES = {
    "a state and a list": """
        outs = []
        for t in range(length):
            h = torch.tanh(x[:, t] + h)
            outs.append(h * 2)
        return torch.stack(outs, dim=1), h
""",
    "rows of a tensor that is there": """
        out = torch.zeros_like(x)
        for t in range(length):
            h = 0.5 * h + x[:, t]
            out[:, t] = h
        return out
""",
    "backwards": """
        out = torch.zeros_like(x)
        for t in range(length - 1, -1, -1):
            h = 0.5 * h + x[:, t]
            out[:, t, :] = h
        return out, h
""",
    "from the second step on": """
        outs = [h]
        for t in range(1, length):
            h = h + x[:, t] * x[:, t - 1]
            outs.append(h)
        return torch.stack(outs)
""",
    "rows of a tensor": """
        outs = []
        for row in x.unbind(1):
            h = torch.tanh(row + h)
            outs.append(h)
        for number, row in enumerate(outs):
            h = h + row * number
        return torch.stack(outs, dim=1), h
""",
    "numbered rows of a tensor": """
        for number, row in enumerate(x):
            h = h + row.sum(0) / (number + 1)
        return h, row
""",
    "two states that are exchanged": """
        c = h * 0
        for t in range(length):
            gate = torch.sigmoid(x[:, t])
            h, c = c + gate, h * gate
        return h, c, gate
""",
    "what stays as it is": """
        for t in range(length):
            if h.sum() > 1e6:
                break
            h = h + x[:, t]
        return h
""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_loop_as_a_function_of_one_step_gives_what_the_loop_gives(body: str):
    text = HEAD + body
    plain: dict = {}
    exec(text, plain)
    rewritten = loop_names()
    exec(compile(with_loops(ast.parse(text)), "<problem>", "exec"), rewritten)
    x, h = torch.randn(3, 7, 4), torch.randn(3, 4)
    expected, got = plain["Model"]().forward(x, h), rewritten["Model"]().forward(x, h)
    torch.testing.assert_close(got, expected)
    assert ("__step_0__" in ast.unparse(with_loops(ast.parse(text)))) == ("break" not in body)


def test_a_loop_in_a_constructor_is_run_as_it_is_where_its_count_is_a_size():
    text = (
        HEAD
        + """
    def __init__(self, blocks):
        layers = []
        for _ in range(1, blocks):
            layers.append(torch.nn.Linear(4, 4))
        self.layers = torch.nn.Sequential(*layers)
"""
    )
    module = loop_names()
    exec(compile(with_loops(ast.parse(text)), "<problem>", "exec"), module)
    blocks = Sizes(ProblemText(text), lambda value, path: True).symbol(12, "self.blocks", "blocks")
    assert isinstance(blocks, torch.SymInt)
    assert len(module["Model"](blocks).layers) == 11
