"""Computes the score of a report in the service's answers. Trainers choose the weights
(agent/rewards, plugs).
"""

from __future__ import annotations

from kernelwright.agent.rewards.verdict_findings import (
    checks_of,
    compiled,
    follows_the_rule,
    speedup_low,
    timed_profile,
)
from kernelwright.agent.serving.wire import Score
from kernelwright.tools.report import Fault, Report
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS


def score_of(report: Report) -> Score:
    """See docs/reference/service.md, "score"."""
    fault = report.failure.fault if report.failure else None
    passed, checks_made = checks_of(report)
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
        checks_made=checks_made,
        narrow_contract=report.narrow_contract,
        reward_eligible=report.reward_eligible,
        reward_ineligible_because=report.reward_ineligible_because,
        fault=fault,
        mask=fault in UNCACHED_FAULTS or fault is Fault.UNJUDGED,
        explanation=report.explanation,
    )
