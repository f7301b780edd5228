"""The parts of a reward, read from a report. What they weigh is the trainer's affair (rl/credit, and the plugs)."""

from __future__ import annotations

from kernelwright.agent.serving.wire import Score
from kernelwright.tools.profile_results import ProfileResult
from kernelwright.tools.report import Fault, Report, Rung
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

FAULTS_THAT_BREAK_THE_RULE = frozenset(
    {Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT, Fault.NO_KERNEL, Fault.FALLBACK, Fault.CHEAT}
)
"""Faults of form and of whose work it is: with these everything else is worth nothing."""
FAULTS_BEFORE_A_LAUNCH = frozenset({Fault.IMPORT, Fault.COMPILE, Fault.RESOURCES, Fault.LAUNCH})
"""Faults that come before any kernel ran."""


def score_of(report: Report) -> Score:
    """See docs/reference/service.md, "score"."""
    fault = report.failure.fault if report.failure else None
    passed, made = checks_of(report)
    profile = timed_profile(report)
    return Score(
        ended_at=report.ended_at,
        compiled=compiled(report),
        correct=report.correct,
        gate=0.0 if not follows_the_rule(report) or report.degenerate else 1.0,
        speedup=report.speedup,
        speedup_low=speedup_low(profile) if profile is not None else None,
        compile_speedup=profile.speedup_compiled if profile is not None else None,
        compile_speedup_low=profile.speedup_compiled_low if profile is not None else None,
        speed_of_light=profile.speed_of_light if profile is not None else None,
        milliseconds=profile.candidate.median
        if profile is not None and profile.candidate is not None
        else None,
        share=report.own_work.share if report.own_work else None,
        time_share=profile.own_share if profile is not None else None,
        checks_passed=passed,
        checks_made=made,
        narrow_contract=report.narrow_contract,
        reward_eligible=report.reward_eligible,
        reward_ineligible_because=report.reward_ineligible_because,
        fault=fault,
        mask=fault in UNCACHED_FAULTS or fault is Fault.UNJUDGED,
        explanation=report.explanation,
    )


def follows_the_rule(report: Report) -> bool:
    """Says whether a candidate has no fault that breaks the rule of its own work."""
    return report.failure is None or report.failure.fault not in FAULTS_THAT_BREAK_THE_RULE


def compiled(report: Report) -> bool:
    """Whether its kernels compile; where nothing was compiled ahead, a launch was reached."""
    if report.rung is Rung.SOURCE:
        return False
    if report.compile is not None:
        return report.compile.passed
    return report.failure is None or report.failure.fault not in FAULTS_BEFORE_A_LAUNCH


def checks_of(report: Report) -> tuple[int, int]:
    """Returns how many checks were passed, of how many that were made."""
    result = report.correctness or report.interpreted
    if result is None or not result.checks:
        return 0, 0
    passed = sum(check.passed for check in result.checks)
    return passed, len(result.checks) + (0 if report.correct or passed < len(result.checks) else 1)


def timed_profile(report: Report) -> ProfileResult | None:
    """Returns the profile of a correct kernel that a GPU timed; None where there is none, or timing failed."""
    is_timed = report.correct and report.judged_on not in ("", "cpu") and follows_the_rule(report)
    return (
        report.profile
        if is_timed and report.profile is not None and report.profile.failure is None
        else None
    )


def speedup_low(profile: ProfileResult) -> float | None:
    """Returns the lower 95 % bound of the speedup over eager; the median in reports that have no bound."""
    return profile.speedup_low if profile.speedup_low is not None else profile.speedup
