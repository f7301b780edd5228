"""Extracts the facts of a report behind a reward: own work, compilation, checks, the timed profile."""

from __future__ import annotations

from kernelwright.tools.profile_results import ProfileResult
from kernelwright.tools.report import Fault, Report, Rung

FAULTS_THAT_BREAK_THE_RULE = frozenset(
    {Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT, Fault.NO_KERNEL, Fault.FALLBACK, Fault.CHEAT}
)
"""Faults of the file's form or of its own work: with such a fault the parts `form` to `share` of a
reward are 0.
"""
FAULTS_BEFORE_A_LAUNCH = frozenset({Fault.IMPORT, Fault.COMPILE, Fault.RESOURCES, Fault.LAUNCH})
"""Faults before the first kernel launch."""


def follows_the_rule(report: Report) -> bool:
    """Returns whether a candidate has no fault of FAULTS_THAT_BREAK_THE_RULE."""
    return report.failure is None or report.failure.fault not in FAULTS_THAT_BREAK_THE_RULE


def compiled(report: Report) -> bool:
    """Returns whether the kernels compile; if nothing was compiled ahead, whether a launch was reached."""
    if report.rung is Rung.SOURCE:
        return False
    if report.compile is not None:
        return report.compile.passed
    return report.failure is None or report.failure.fault not in FAULTS_BEFORE_A_LAUNCH


def checks_of(report: Report) -> tuple[int, int]:
    """Returns the number of passed checks and the number of checks made."""
    result = report.correctness or report.interpreted
    if result is None or not result.checks:
        return 0, 0
    passed = sum(check.passed for check in result.checks)
    return passed, len(result.checks) + (0 if report.correct or passed < len(result.checks) else 1)


def timed_profile(report: Report) -> ProfileResult | None:
    """Returns the profile of a correct kernel timed on a GPU; None without one, or after a failed
    timing.
    """
    is_timed = report.correct and report.judged_on not in ("", "cpu") and follows_the_rule(report)
    return (
        report.profile
        if is_timed and report.profile is not None and report.profile.failure is None
        else None
    )


def speedup_low(profile: ProfileResult) -> float | None:
    """Returns the lower 95 % bound of the speedup over eager; the median for reports without a
    bound.
    """
    return profile.speedup_low if profile.speedup_low is not None else profile.speedup
