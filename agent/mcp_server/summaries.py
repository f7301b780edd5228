"""Shortens a report to the answer for a coding agent: a pure function of the report and the
question.
"""

from __future__ import annotations

import math
from typing import Any

from kernelwright.agent.mcp_server.answers import (
    FailureNote,
    KernelNote,
    LaunchNote,
    Question,
    SpeedNote,
    VerdictOutcome,
)
from kernelwright.tools.report import Failure, Fault, ProfileResult, Report, Speedup

FAULTS_BEFORE_COMPILATION = frozenset(
    {
        Fault.NO_CODE,
        Fault.SYNTAX,
        Fault.ENTRY_POINT,
        Fault.IMPORT,
        Fault.NO_KERNEL,
        Fault.FALLBACK,
        Fault.CHEAT,
    }
)
"""Faults of a text without a valid candidate, or of a candidate whose kernels do not do the work.
"""
MAX_TRACEBACK_CHARACTERS = 1500
"""Number of characters of a traceback in an answer, from its end."""


def outcome_of(question: Question, report: Report, baseline: str = "eager") -> VerdictOutcome:
    """Returns the outcome word for a report."""
    if report.failure is not None and report.failure.fault in FAULTS_BEFORE_COMPILATION:
        return VerdictOutcome.INVALID
    if question is Question.COMPILE:
        return VerdictOutcome.COMPILED if report.failure is None else VerdictOutcome.NOT_COMPILED
    if report.failure is not None:
        return VerdictOutcome.INCORRECT
    if not report.correct:
        return VerdictOutcome.NEEDS_GPU if report.needs_gpu else VerdictOutcome.INCONCLUSIVE
    return (
        _speed_outcome(report, baseline) if question is Question.BENCH else VerdictOutcome.CORRECT
    )


def _speed_outcome(report: Report, baseline: str) -> VerdictOutcome:
    speedup = _speedup_over(report.profile, baseline)
    if speedup is None or speedup.low <= 1.0 <= speedup.high:
        return VerdictOutcome.INCONCLUSIVE
    return VerdictOutcome.FASTER if speedup.low > 1.0 else VerdictOutcome.SLOWER


def _speedup_over(profile: ProfileResult | None, baseline: str) -> Speedup | None:
    """Returns the speedup over `eager` or `compile`; None if not timed, or timed by another method
    than the candidate.
    """
    if profile is None:
        return None
    return profile.over_eager() if baseline == "eager" else profile.over_compiled()


def verdict_fields(question: Question, report: Report, baseline: str = "eager") -> dict[str, Any]:
    """Returns the fields of a `VerdictAnswer` determined by a report."""
    stage = report.correctness or report.interpreted
    work = report.own_work or (stage.own_work if stage else None)
    return {
        "outcome": outcome_of(question, report, baseline),
        "explanation": ""
        if question is Question.COMPILE and report.failure is None
        else report.explanation,
        "ended_at": report.ended_at.value,
        "judged_on": report.judged_on,
        "failure": _failure(report.failure) if report.failure else None,
        "checks_passed": sum(check.passed for check in stage.checks) if stage else None,
        "checks_made": len(stage.checks) if stage else None,
        "own_share": _finite(work.share) if work else None,
        "seed": stage.seed if stage else None,
        "kernels": _kernels(report),
        "speed": _speed(report.profile, baseline) if report.profile and report.correct else None,
        "advice": report.advice,
        "warnings": report.warnings,
        "seconds": round(report.seconds, 3),
    }


def _failure(failure: Failure) -> FailureNote:
    mismatch = failure.mismatch
    return FailureNote(
        fault=failure.fault,
        cheat=failure.cheat,
        message=failure.message,
        line=failure.where.line if failure.where else None,
        text=failure.where.caret() if failure.where else "",
        pattern=mismatch.pattern if mismatch else None,
        hint=mismatch.hint if mismatch else "",
        wrong=mismatch.wrong if mismatch else None,
        total=mismatch.total if mismatch else None,
        traceback=failure.trace[-MAX_TRACEBACK_CHARACTERS:],
    )


def _kernels(report: Report) -> tuple[KernelNote, ...]:
    compiled = report.compile
    if compiled is None:
        return ()
    return tuple(
        KernelNote(
            name=kernel.name,
            target=compiled.target,
            registers=kernel.registers,
            spills=kernel.spills,
            shared=kernel.shared,
            occupancy=_finite(kernel.occupancy),
            occupancy_limit=kernel.occupancy_limit,
            tensor_core=kernel.tensor_core,
            vector_bits=kernel.vector_bits,
            launches=kernel.launches,
        )
        for kernel in compiled.kernels
    )


def _speed(profile: ProfileResult, baseline: str) -> SpeedNote:
    over_eager = baseline == "eager"
    other = profile.eager if over_eager else profile.compiled
    speedup = _speedup_over(profile, baseline)
    return SpeedNote(
        device=profile.device,
        candidate=_finite(profile.candidate.median) if profile.candidate else None,
        host_milliseconds=_finite(profile.host_ms),
        baseline=baseline,
        baseline_milliseconds=_finite(other.median) if other else None,
        baseline_host_milliseconds=_finite(
            profile.eager_host_ms if over_eager else profile.compiled_host_ms
        ),
        speedup=_finite(speedup.median) if speedup else None,
        speedup_low=_finite(speedup.low) if speedup else None,
        speedup_high=_finite(speedup.high) if speedup else None,
        notes=profile.notes,
        speed_of_light=_finite(profile.speed_of_light),
        bound=profile.roofline.bound if profile.roofline else "",
        launches=tuple(
            LaunchNote(
                kernel=launch.kernel, milliseconds=_finite(launch.ms), share=_finite(launch.share)
            )
            for launch in profile.launches
        ),
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
