"""The parts of a reward, read from a report. Weights are the trainer's affair (rl/credit)."""

from __future__ import annotations

from kernelwright.agent.serving.wire import Score
from kernelwright.tools.report import Fault, Report, Rung
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

FAULTS_OF_NO_CANDIDATE = frozenset(
    {Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT, Fault.NO_KERNEL, Fault.FALLBACK, Fault.CHEAT}
)
"""Faults of a text that does not try, or tries something else."""


def score_of(report: Report) -> Score:
    """See docs/reference/service.md, "score"."""
    fault = report.failure.fault if report.failure else None
    compiled = report.compile.passed if report.compile else report.rung is not Rung.SOURCE and fault is None
    return Score(
        ended_at=report.ended_at,
        compiled=compiled,
        correct=report.correct,
        gate=0.0 if fault in FAULTS_OF_NO_CANDIDATE or report.degenerate else 1.0,
        speedup=report.speedup,
        share=report.own_work.share if report.own_work else None,
        reward_eligible=report.reward_eligible,
        reward_ineligible_because=report.reward_ineligible_because,
        fault=fault,
        mask=fault in UNCACHED_FAULTS or fault is Fault.UNJUDGED,
        explanation=report.explanation,
    )
