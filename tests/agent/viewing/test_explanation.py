"""What `agent check --explain` prints."""

from __future__ import annotations

from rich.console import Console

from kernelwright.agent.reporting.verdicts.explanation import explanation_view
from kernelwright.tools.comparison_coverage import (
    ComparisonCoverage,
    ConstantResult,
    Coverage,
    OutcomeCoverage,
    SearchedDraw,
)
from kernelwright.tools.host_choices import HostChoice
from kernelwright.tools.report import Check, CorrectnessResult, Report, SizeOutcome, Tried

COVERAGE = Coverage(
    comparisons=(
        ComparisonCoverage(
            line=20, text="y = tl.where(x > limit, 0.0, y)", operator=">", true=False, false=True, evaluations=12,
            outcomes=OutcomeCoverage.UNCOVERED, nearest=(3.9e6, 1e7),
        ),
        ComparisonCoverage(
            line=19, text="y = tl.maximum(x, 0.0)", operator="max", true=True, false=True, evaluations=14,
            outcomes=OutcomeCoverage.BOTH,
        ),
    ),
    comparison_count=2,
    constant_results=(ConstantResult(line=31, text="flag = bits >> 31", operation="ashr", value=-1.0),),
    searched=(SearchedDraw(change="Put(numbers=(1e7,))", used=False),),
    search_seconds=0.25,
)  # fmt: skip
REPORT = Report(
    problem="p", problem_hash="", candidate_hash="", correct=True, coverage=COVERAGE, seconds=2.0,
    interpreted=CorrectnessResult(
        device="cpu", interpreted=True, checks=(Check(draw="own", passed=True), Check(draw="wide", passed=True)),
        tried=(Tried(sizes={"n": 7}, why="a prime", outcome=SizeOutcome.RIGHT),), seconds=1.5,
    ),
)  # fmt: skip


def test_draws_sizes_comparisons_and_seconds_are_told() -> None:
    console = Console(width=160)
    choice = HostChoice(line=44, text="rows == 7", never="true")
    checked = REPORT.interpreted.with_(host_choices=(choice,))
    with console.capture() as captured:
        console.print(explanation_view(REPORT.with_(interpreted=checked)))
    text = captured.get()
    for words in (
        "own 1, wide 1", "a prime 1", "not used: the reference is not accurate on it", "line 20",
        "false only, uncovered; nearest: 3.9e+06 beside 1e+07", "true and false", "checks 1.50", "in all 2.00",
        "line 44", "rows == 7", "never true", "line 31", "ashr  in  flag = bits >> 31", "always -1",
    ):  # fmt: skip
        assert words in text, text


def test_a_kernel_with_an_uncovered_comparison_earns_no_full_reward() -> None:
    assert not REPORT.reward_eligible
    assert REPORT.reward_ineligible_because.startswith(
        "a comparison was never true on any draw: `>` at line 20"
    )
    assert REPORT.with_(coverage=None).reward_eligible
