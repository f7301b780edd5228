"""`agent solve --variants` drafts plans of the compiler's decisions, judges them, and takes the best."""

import json

from kernelwright.agent.solve.variants import NOT_TIMED
from tests.agent.command_in_process import agent_here
from tests.policies.inductor.decisions.plan_heads import plan_of_source

PROBLEM = """
import torch
import torch.nn as nn

rows, wide = 48, 64


class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm = nn.LayerNorm(wide)

    def forward(self, x):
        y = torch.tanh(x) * torch.sigmoid(x)
        return torch.softmax(self.norm(y) + y, dim=-1), y


def get_inputs():
    return [torch.randn(rows, wide)]


def get_init_inputs():
    return [wide]
"""


def test_three_variants_are_drafted_judged_and_one_is_chosen_and_stored(tmp_path):
    (tmp_path / "normed.py").write_text(PROBLEM, encoding="utf-8")
    ran = agent_here(
        "solve", "normed.py", "--variants", "3", "--policy", "compiler", "--json", "--device", "cpu",
        "--out", "kernel.py", "--db", "runs.db", folder=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    solved = json.loads(ran.stdout)
    outcomes = solved["plans"]["outcomes"]
    assert len(outcomes) == 4
    assert outcomes[0]["plan"] == "default"
    assert len({outcome["plan"] for outcome in outcomes}) == 4
    assert all(outcome["verdict"] == "correct" for outcome in outcomes)
    assert solved["plans"]["note"] == NOT_TIMED
    (chosen,) = [outcome for outcome in outcomes if outcome["chosen"]]
    assert chosen["bytes"] <= outcomes[0]["bytes"]
    assert (
        str(plan_of_source((tmp_path / "kernel.py").read_text(encoding="utf-8"))) == chosen["plan"]
    )
    shown = agent_here("inspect", "1", "--db", "runs.db", "--show", "turn", folder=tmp_path).stdout
    for outcome in outcomes:
        assert f"| {outcome['plan']} |" in shown


def test_variants_of_a_draft_by_another_author_are_refused(tmp_path):
    (tmp_path / "normed.py").write_text(PROBLEM, encoding="utf-8")
    ran = agent_here("solve", "normed.py", "--variants", "2", "--draft", "policy", folder=tmp_path)
    assert ran.returncode == 2
    assert "plans are the compiler's" in ran.stderr
