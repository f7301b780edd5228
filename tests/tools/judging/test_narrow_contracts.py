"""A kernel whose own checks take too few sizes is right, and earns no full reward."""

from __future__ import annotations

import re

import pytest

from kernelwright.agent.rewards.formula import FORMULA_PRESETS
from kernelwright.agent.rewards.scoring import score
from kernelwright.agent.serving.scoring import score_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.judging.rules import narrow_contract
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, Report, SizeOutcome, Tried

PROBLEM = Problem(
    name="relu.py",
    source="""import torch
ROWS = 700
COLUMNS = 512
LAYERS = 6


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(LAYERS, ROWS, COLUMNS)]


def get_init_inputs():
    return []
""",
)
SMALL_PROBLEM = Problem(
    name="relu.py",
    source=re.sub(r"[A-Z]+ = [0-9]+\n", "", PROBLEM.source).replace(
        "torch.randn(LAYERS, ROWS, COLUMNS)", "torch.randn(2, 64, 16).clamp(-9, 9)"
    ),
)
"""Its sizes are plain numbers, beside two numbers that are no sizes."""
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, 0.0)
    tl.store(y + i, tl.where(v < 0.0, 0.0, v), i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if {refused}:
            raise ValueError("a size is not the one that this kernel is for")
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""
GUARDS = {
    "none": ("False", ""),
    "one size of three": ("x.shape[2] != 512", ""),
    "two sizes of three": ("x.shape[2] != 512 or x.shape[0] != 6", "where ROWS alone varies"),
    "multiples": ("x.shape[2] % 8 != 0 and x.shape[2] > 4096", ""),
}


def result_with(*tried: Tried, **fields: object) -> CorrectnessResult:
    return CorrectnessResult(device="cpu", interpreted=True, tried=tried, **fields)


def right(**sizes: int) -> Tried:
    return Tried(sizes=sizes)


def outside(**sizes: int) -> Tried:
    return Tried(
        sizes=sizes, outcome=SizeOutcome.OUTSIDE_CONTRACT, message="ValueError: not this size"
    )


def test_a_kernel_that_takes_the_problem_s_own_size_alone_is_narrow():
    result = result_with(right(), outside(ROWS=7), outside(COLUMNS=5, LAYERS=2))
    assert narrow_contract(PROBLEM, result).startswith(
        "it was right at the problem's own size only"
    )


def test_a_kernel_that_leaves_one_dimension_free_is_narrow_and_with_two_it_is_not():
    fixed = {"COLUMNS": 512, "LAYERS": 6}
    one = result_with(right(ROWS=2), right(ROWS=9), fixed_sizes=fixed)
    assert "where ROWS alone varies" in narrow_contract(PROBLEM, one)
    two = result_with(
        right(ROWS=2, LAYERS=4), right(ROWS=9, LAYERS=5), fixed_sizes={"COLUMNS": 512}
    )
    assert narrow_contract(PROBLEM, two) == ""


def test_a_kernel_that_refuses_some_values_of_free_sizes_is_not_narrow():
    result = result_with(right(), right(ROWS=5, COLUMNS=9), outside(ROWS=3, COLUMNS=8192))
    assert narrow_contract(PROBLEM, result) == ""


def test_a_kernel_that_was_checked_at_no_other_size_and_refused_none_is_not_narrow():
    assert narrow_contract(PROBLEM, result_with(right())) == ""


@pytest.fixture(scope="module")
def reports():
    with Evaluator(workers=1) as evaluator:
        yield {
            name: evaluator.evaluate(
                PROBLEM, KERNEL.format(refused=refused), Options(sizes=4, seed=5)
            )
            for name, (refused, _) in GUARDS.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("name", GUARDS)
def test_the_judge_says_who_may_earn_a_full_reward_and_what_was_right(reports, name):
    report, (_, reason) = reports[name], GUARDS[name]
    assert report.correct, report.explanation
    assert report.reward_eligible is (reason == "")
    assert reason in report.reward_ineligible_because
    told = Report.model_validate_json(report.model_dump_json())
    assert told.narrow_contract == report.narrow_contract


def test_each_drawn_size_that_the_guard_refuses_is_listed_as_outside_the_contract(reports):
    from rich.console import Console

    from kernelwright.agent.reporting.verdicts.verdict import report_view

    tried = reports["two sizes of three"].interpreted.tried
    refused = [size for size in tried if size.outcome is SizeOutcome.OUTSIDE_CONTRACT]
    assert refused
    assert all("a size is not the one" in size.message for size in refused)
    assert reports["two sizes of three"].interpreted.fixed_sizes == {"COLUMNS": 512, "LAYERS": 6}
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(report_view(reports["two sizes of three"]))
    assert captured.get().count("outside the contract") >= len(refused)
    assert "no full reward: it was right where ROWS alone varies" in captured.get()


def test_a_guard_is_kept_at_a_problem_that_is_small_as_it_is_and_names_no_size():
    # The base size is the problem's own then, so that the guard raises at drawn sizes alone.
    with Evaluator(workers=1) as evaluator:
        report = evaluator.evaluate(
            SMALL_PROBLEM, KERNEL.format(refused="x.shape[1] != 64"), Options(sizes=4, seed=5)
        )
    assert report.correct, report.explanation
    assert report.reward_eligible, report.reward_ineligible_because
    assert report.interpreted.fixed_sizes["x.shape[1]"] == 64
    checked = [s for s in report.interpreted.tried if s.outcome is SizeOutcome.RIGHT and s.sizes]
    assert len(checked) >= 3


def test_a_kernel_for_the_own_size_alone_of_a_small_problem_is_right_and_narrow():
    with Evaluator(workers=1) as evaluator:
        report = evaluator.evaluate(
            SMALL_PROBLEM,
            KERNEL.format(refused="x.shape != (2, 64, 16)"),
            Options(sizes=4, seed=5),
        )
    assert report.correct, report.explanation
    assert "own size only" in report.reward_ineligible_because


def test_a_formula_pays_a_narrow_contract_only_if_it_says_so(reports):
    narrow, wide = reports["two sizes of three"], reports["none"]
    execution = FORMULA_PRESETS["execution"]
    generous = execution.with_(rewards_narrow_contracts=True)
    assert score(execution, wide).total == score(generous, narrow).total > 1.0
    assert score(execution, narrow).total < 0.1
    assert "no full reward" in score(execution, narrow).words["correct"]
    assert not score_of(narrow).reward_eligible
    assert score_of(wide).reward_eligible
