"""The one word for a report, decided from values alone."""

from __future__ import annotations

import pytest

from kernelwright.agent.mcp_server.answers import Question, VerdictOutcome
from kernelwright.agent.mcp_server.summaries import outcome_of, verdict_fields
from kernelwright.tools.report import (
    Failure,
    Fault,
    ProfileResult,
    Report,
    Rung,
    Timing,
    TimingMethod,
)
from kernelwright.tools.timing.compiled_reference import Baseline
from kernelwright.tools.timing.extras import compared_with


def timing(
    low: float, median: float, high: float, method: TimingMethod = TimingMethod.GRAPH
) -> Timing:
    return Timing(
        median=median,
        low=low,
        high=high,
        mean=median,
        std=0.0,
        minimum=low,
        calls=100,
        method=method,
    )


def timed(candidate: Timing, eager: Timing, compiled: Timing | None = None) -> Report:
    profile = ProfileResult(
        device="NVIDIA H100", candidate=candidate, eager=eager,
        speedup=eager.median / candidate.median, speedup_low=eager.low / candidate.high,
    )  # fmt: skip
    if compiled:
        beside = eager.with_(method=compiled.method)
        profile = compared_with(
            Baseline(compiled=compiled, eager=beside, compiled_host_ms=0.021), profile
        )
    return Report(
        problem="p", problem_hash="h", candidate_hash="c", rung=Rung.PROFILE, correct=True, judged_on="NVIDIA H100",
        profile=profile,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("candidate", "eager", "outcome"),
    [
        (timing(0.9, 1.0, 1.1), timing(1.9, 2.0, 2.1), VerdictOutcome.FASTER),
        (timing(1.9, 2.0, 2.1), timing(0.9, 1.0, 1.1), VerdictOutcome.SLOWER),
        (timing(0.9, 1.0, 1.1), timing(0.95, 1.05, 1.15), VerdictOutcome.INCONCLUSIVE),
    ],
)
def test_a_speed_counts_only_where_the_interval_leaves_one_out(candidate, eager, outcome):
    report = timed(candidate, eager)
    assert outcome_of(Question.BENCH, report) is outcome
    assert outcome_of(Question.CHECK, report) is VerdictOutcome.CORRECT


def test_the_baseline_decides_against_what_a_speed_is_held():
    report = timed(timing(0.9, 1.0, 1.1), timing(1.9, 2.0, 2.1), compiled=timing(0.5, 0.6, 0.7))
    assert outcome_of(Question.BENCH, report, "eager") is VerdictOutcome.FASTER
    assert outcome_of(Question.BENCH, report, "compile") is VerdictOutcome.SLOWER
    speed = verdict_fields(Question.BENCH, report, "compile")["speed"]
    assert speed.speedup == pytest.approx(0.6)
    assert speed.baseline_host_milliseconds == 0.021
    without = timed(timing(0.9, 1.0, 1.1), timing(1.9, 2.0, 2.1))
    assert outcome_of(Question.BENCH, without, "compile") is VerdictOutcome.INCONCLUSIVE


def test_a_baseline_that_was_timed_by_another_method_decides_nothing():
    slow = timing(8.0, 9.0, 10.0, TimingMethod.QUEUED)
    report = timed(timing(0.9, 1.0, 1.1), timing(1.9, 2.0, 2.1), compiled=slow)
    assert outcome_of(Question.BENCH, report, "eager") is VerdictOutcome.FASTER
    assert outcome_of(Question.BENCH, report, "compile") is VerdictOutcome.INCONCLUSIVE
    assert verdict_fields(Question.BENCH, report, "compile")["speed"].speedup is None


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.MISMATCH, VerdictOutcome.INCORRECT),
        (Fault.TIMEOUT, VerdictOutcome.INCORRECT),
        (Fault.CHEAT, VerdictOutcome.INVALID),
        (Fault.FALLBACK, VerdictOutcome.INVALID),
        (Fault.SYNTAX, VerdictOutcome.INVALID),
    ],
)
def test_a_failure_is_incorrect_or_no_candidate_at_all(fault, outcome):
    failed = timed(timing(1, 1, 1), timing(2, 2, 2)).with_(
        correct=False, failure=Failure(fault=fault, message="m")
    )
    assert outcome_of(Question.BENCH, failed) is outcome
    assert verdict_fields(Question.BENCH, failed)["speed"] is None


def test_what_could_not_be_checked_here_is_inconclusive():
    unchecked = Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        rung=Rung.COMPILE,
        warnings=("not interpreted: needs a GPU",),
    )
    assert outcome_of(Question.CHECK, unchecked) is VerdictOutcome.INCONCLUSIVE
    assert "needs a GPU" in verdict_fields(Question.CHECK, unchecked)["explanation"]
    assert outcome_of(Question.COMPILE, unchecked) is VerdictOutcome.COMPILED
    assert (
        outcome_of(Question.CHECK, unchecked.with_(needs_gpu="inline assembly"))
        is VerdictOutcome.NEEDS_GPU
    )
