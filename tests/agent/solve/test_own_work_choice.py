"""`agent solve` chooses how much of the work may be a library's, and says why."""

import json

import pytest

from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.agent.solve.own_work_choice import ESTIMATED, OwnWorkChooser
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from tests.agent.command_in_process import agent_here

LAYER = """
import torch
import torch.nn as nn

CPU_SIZES = {}


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        return torch.relu(self.layer(x)) + 1


def get_inputs():
    return [torch.randn(24, 32, dtype=torch.float16)]


def get_init_inputs():
    return [32, 48]
"""


@pytest.fixture(scope="module")
def chooser():
    with Drafter() as drafter, Evaluator(device="cpu") as evaluator:
        yield OwnWorkChooser(drafter, evaluator, Options(), lambda _: None)


def rule_for(chooser, source: str, **settings: str) -> tuple[str, str]:
    options = {"policy": "compiler", "draft": "compiler", "own_work": "auto"} | settings
    choice = chooser.choose(Problem(name="layer", source=source), Settings(**options))
    return choice.rule, choice.reason


def test_products_of_half_precision_are_the_librarys_without_a_gpu_by_a_stated_estimate(chooser):
    assert rule_for(chooser, LAYER) == ("report", ESTIMATED)
    assert "estimated without a GPU" in ESTIMATED


def test_products_of_fp32_are_the_drafts_own(chooser):
    assert rule_for(chooser, LAYER.replace("float16", "float32")) == ("strict", "")


def test_a_problem_without_products_has_nothing_to_choose(chooser):
    source = LAYER.replace("torch.relu(self.layer(x)) + 1", "torch.relu(x) + self.layer.bias[:32]")
    assert rule_for(chooser, source) == ("strict", "")


@pytest.mark.parametrize("rule", ["strict", "share:0.5", "report"])
def test_a_rule_that_the_user_typed_stays(chooser, rule):
    assert rule_for(chooser, LAYER, own_work=rule) == (rule, "")


def test_a_run_without_the_compiler_is_judged_strictly(chooser):
    assert rule_for(chooser, LAYER, draft="policy") == ("strict", "")


@pytest.mark.parametrize(("typed", "rule"), [((), "report"), (("--own-work", "strict"), "strict")])
def test_the_command_tells_the_rule_in_its_json(tmp_path, typed, rule):
    (tmp_path / "layer.py").write_text(LAYER, encoding="utf-8")
    done = agent_here(
        "solve",
        "layer.py",
        "--policy",
        "compiler",
        "--device",
        "cpu",
        "--json",
        *typed,
        folder=tmp_path,
    )
    solved = json.loads(done.stdout)
    assert solved["correct"], done.stderr
    assert solved["own_work"] == rule
    assert solved["own_work_reason"] == ("" if typed else ESTIMATED)
    assert ("addmm" in solved["left_to_torch"]) == (rule == "report")


def test_a_batch_has_no_rule_that_is_chosen(tmp_path):
    done = agent_here(
        "batch",
        "fused silu",
        "--own-work",
        "auto",
        "--device",
        "cpu",
        "--out",
        "out",
        folder=tmp_path,
    )
    assert done.returncode == 2
    assert "agent solve only" in done.stderr
