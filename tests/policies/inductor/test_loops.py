"""Loops of a problem's text as functions of one step: what they compute stays the same."""

import ast

import pytest
import torch

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.tracing.loop_syntax import loop_names, with_loops
from kernelwright.policies.inductor.tracing.problem_text import ProblemText
from kernelwright.policies.inductor.tracing.sizes import SymbolicSizes
from kernelwright.tools.problem import Problem

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
    "a name that another branch assigns": """
        if length > 9:
            out = x * 2
        else:
            outs = []
            for t in range(length):
                out = x[:, t] + h
                outs.append(out)
            out = torch.stack(outs, dim=1)
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
    "the last axis, and reversed ranges": """
        out = torch.zeros_like(x)
        h = x[..., 0] * 0
        for t in reversed(range(x.shape[-1])):
            h = 0.5 * h + x[..., t]
            out[..., t] = h
        return out, h
""",
    "the last element of what is collected": """
        outs = [x[:, 0]]
        for t in range(1, length):
            outs.append(0.9 * outs[-1] + 0.1 * x[:, t])
        return torch.cat(outs), outs[-1]
""",
    "states that are written into": """
        states = torch.zeros(x.shape[0], length + 1, x.shape[2])
        for t in range(length):
            states[:, t + 1] = torch.tanh(states[:, t] + x[:, t])
            states[:, t + 1].mul_(0.5)
        return states
""",
    "a loop inside over what is carried": """
        hidden = [h, h * 2]
        outs = []
        for row, other in zip(x.unbind(1), x.split(1, 1)):
            for i in range(2):
                hidden[i] = torch.tanh(row + hidden[i]) + other.squeeze(1)
            outs.append(hidden[1])
        return torch.stack(outs), torch.stack(hidden)
""",
    "a table of two sizes": """
        table = torch.zeros(x.shape[0], length + 1, x.shape[2] + 1)
        for i in range(1, length + 1):
            for j in range(1, x.shape[2] + 1):
                best = torch.maximum(table[:, i - 1, j], table[:, i, j - 1])
                table[:, i, j] = torch.maximum(best, table[:, i - 1, j - 1] + x[:, i - 1, j - 1])
        return table[:, -1, -1], best
""",
    "rows of a table": """
        last = h.new_zeros(x.shape[0])
        for i in range(length):
            cells = []
            run = last * 0.5
            for j in range(x.shape[2]):
                run = torch.tanh(run + x[:, i, j])
                cells.append(run)
            last = torch.stack(cells, 1).sum(1)
        return last, run
""",
    "layers round steps": """
        rows = x.unbind(1)
        for gain in [0.5, 2.0]:
            outs = []
            for row in rows:
                h = torch.tanh(row * gain + h)
                outs.append(h)
            x = torch.stack(outs, 1)
            rows = x.unbind(1)
        return x, h
""",
    "what an inner loop leaves to the next step": """
        seen = h * 0
        for i in range(length):
            total = seen + x[:, i]
            for j in range(length):
                seen = x[:, j] * (i + 1)
            h = h + total
        return h
""",
    "a number in each row, and a list's elements": """
        out, kept = torch.empty_like(x), [None] * length
        for t in range(length):
            out[:, t] = 0.5
            kept[t] = x[:, t]
        return out, torch.stack(kept)
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
    blocks = SymbolicSizes(ProblemText(text), lambda value, path: True).symbol(
        12, "self.blocks", "blocks"
    )
    assert isinstance(blocks, torch.SymInt)
    assert len(module["Model"](blocks).layers) == 11


SIZED = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, k, place):
        pieces = x.split(1, -1)
        m = [pieces[0]]
        for t in range(1, len(pieces)):
            m.append(0.9 * m[-1] + 0.1 * pieces[t])
        solved = -k
        for i in range(1, k.shape[-1]):
            solved[..., i, :i] = solved[..., i, :i] + (solved[..., i, :, None] * solved[..., :, :i]).sum(-2)
        return torch.cat(m, -1), solved, x[place]


def get_inputs():
    return [torch.rand(4, 12), torch.rand(3, 9, 9), torch.tensor(2)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_loops_over_pieces_and_over_growing_slices_are_loops_of_the_draft_for_every_size(
    drafter: Drafter,
):
    made = drafter.draft(Problem(name="sized", source=SIZED))
    assert (made.refused, made.fixed_sizes) == ("", ())
    assert made.source.count("        for time_step") == 2


RWKV = """
import torch
from transformers import RwkvConfig
from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

batch, length, hidden = 2, 7, 16

class Model(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layer = RwkvSelfAttention(RwkvConfig(hidden_size=hidden, attention_hidden_size=hidden))
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -0.5, 0.5)

    def forward(self, x):
        return self.layer(x)[0]

def get_inputs():
    return [torch.randn(batch, length, hidden)]

def get_init_inputs():
    return [hidden]
"""


@pytest.mark.slow
def test_a_loop_of_an_installed_package_is_a_loop_of_the_draft_for_every_length():
    with Drafter(seconds=90) as drafter:
        written = drafter.draft(Problem(name="rwkv", source=RWKV))
    assert written.usable, written.refused
    assert "in range(length)" in written.source
    assert "x.shape[1]" not in written.fixed_sizes
