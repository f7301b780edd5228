"""Converts a verdict into the parts of a reward, and explains each part in words."""

from __future__ import annotations

import math

from kernelwright.agent.rewards.formula import Formula, RewardPart, SpeedBaseline
from kernelwright.agent.rewards.reward_parts import (
    Findings,
    clipped_speedup,
    is_kept,
    reward_parts,
    rewarded_speedup,
)
from kernelwright.agent.rewards.verdict_findings import (
    checks_of,
    compiled,
    follows_the_rule,
    speedup_low,
    timed_profile,
)
from kernelwright.policies.base import FinishReason, Value
from kernelwright.store.records import Turn
from kernelwright.tools.report import Fault, Report


class ReplyForm(Value):
    """The properties of a reply that determine a reward."""

    finish: FinishReason | None = None
    tokens: int = 0


class ScoredVerdict(Value):
    """The parts of a reward and the reason for each. `kept` is False if the formula rejects the
    sample.
    """

    parts: dict[str, float]
    words: dict[str, str]
    kept: bool = True

    @property
    def total(self) -> float:
        """Returns the sum of the parts, rounded once."""
        return math.fsum(self.parts.values())


def reply_of(turn: Turn) -> ReplyForm:
    """Returns the properties of a turn's reply: its finish reason, and its length in tokens."""
    completion = turn.completion
    if completion is None:
        return ReplyForm()
    return ReplyForm(finish=completion.finish, tokens=completion.usage.completion_tokens)


def score(formula: Formula, report: Report, reply: ReplyForm | None = None) -> ScoredVerdict:
    """Returns the reward of a verdict. A pure function: equal report, reply and formula give
    equal parts.
    """
    reply = reply or ReplyForm()
    findings = findings_of(report, reply)
    return ScoredVerdict(
        parts=reward_parts(formula.weights, findings),
        words={
            RewardPart.FORM: _form(report),
            RewardPart.COMPILE: _compile(report),
            RewardPart.CHECKS: _checks(report, findings),
            RewardPart.CORRECT: _correct(formula, report),
            RewardPart.SPEED: _speed(formula, report, findings),
            RewardPart.SHARE: _share(formula, report),
            RewardPart.LENGTH: _length(reply),
            RewardPart.CHEAT: _cheat(report),
        },
        kept=is_kept(formula.weights, findings, report.candidate_hash),
    )


def findings_of(report: Report, reply: ReplyForm) -> Findings:
    """Returns the findings of a report and a reply that determine a reward."""
    passed, total = checks_of(report)
    profile = timed_profile(report)
    return Findings(
        follows_rule=follows_the_rule(report),
        is_cheat=report.failure is not None and report.failure.fault is Fault.CHEAT,
        compiled=compiled(report),
        checks_passed=passed,
        checks_made=total,
        correct=report.correct,
        is_narrow=bool(report.narrow_contract),
        speedup_low=speedup_low(profile) if profile is not None else None,
        compile_speedup_low=profile.speedup_compiled_low if profile is not None else None,
        share=_own_share(report),
        is_cut_off=reply.finish is FinishReason.LENGTH,
    )


def on_gpu(report: Report) -> bool:
    """Returns whether the verdict was made on a GPU, at full shapes."""
    return report.judged_on not in ("", "cpu")


def _form(report: Report) -> str:
    if follows_the_rule(report):
        return "the reply holds a program with its own kernels"
    assert report.failure is not None
    fault = report.failure.fault.value
    return f"the rule is broken ({fault}): compile, checks, correct, speed and share count nothing"


def _compile(report: Report) -> str:
    if not follows_the_rule(report):
        return "not counted: the rule is broken"
    return "its kernels compile" if compiled(report) else "it does not compile"


def _checks(report: Report, findings: Findings) -> str:
    if not follows_the_rule(report) or not findings.checks_made:
        return "no check was made that counts"
    return f"{findings.checks_passed} of {findings.checks_made} checks made were passed"


def _narrow(formula: Formula, report: Report) -> str:
    """Returns the reason against a full reward for a correct kernel; empty if the formula pays in
    full.
    """
    return "" if formula.rewards_narrow_contracts or not report.correct else report.narrow_contract


def _correct(formula: Formula, report: Report) -> str:
    if why := _narrow(formula, report):
        return f"no full reward: {why}"
    if report.correct and follows_the_rule(report):
        return f"right on every check ({report.judged_on or 'not said where'})"
    why = report.failure.fault.value if report.failure else "never judged for correctness"
    return f"not correct: {why}"


def _measured(report: Report) -> str:
    """Returns the reason against a reward for speed and share; empty if both can be rewarded."""
    if not report.correct or not follows_the_rule(report):
        return "counts only for a correct kernel"
    if not on_gpu(report) or report.profile is None:
        is_cpu = not on_gpu(report)
        reason = "the verdict is a CPU's" if is_cpu else "no profile was asked for"
        return f"not measured: {reason}"
    return "not measured: the profile failed" if report.profile.failure else ""


def _speed(formula: Formula, report: Report, findings: Findings) -> str:
    if why := _narrow(formula, report) or _measured(report):
        return why
    speedup = rewarded_speedup(formula.weights, findings)
    if speedup is None:
        return "not measured: no finite speedup"
    clipped = clipped_speedup(formula.weights, speedup)
    note = "" if clipped == speedup else f", counted as {clipped:g}"
    baseline = "eager PyTorch" if formula.baseline is SpeedBaseline.EAGER else "torch.compile"
    return f"{speedup:.3g} times {baseline} at the lower 95 % bound{note}"


def _own_share(report: Report) -> float | None:
    share = report.profile.own_share if report.profile else None
    return None if share is None or not math.isfinite(share) else min(max(share, 0.0), 1.0)


def _share(formula: Formula, report: Report) -> str:
    if why := _narrow(formula, report) or _measured(report):
        return why
    share = _own_share(report)
    if share is None:
        return "not measured: the profiler named no kernels"
    return f"{share:.0%} of GPU time is in its own kernels"


def _length(reply: ReplyForm) -> str:
    if reply.finish is FinishReason.LENGTH:
        return f"the reply was cut off after {reply.tokens} tokens"
    return "the reply ended by itself" if reply.finish else "nothing is known of the reply"


def _cheat(report: Report) -> str:
    failure = report.failure
    if failure is None or failure.fault is not Fault.CHEAT:
        return "no cheat was found"
    kind = failure.cheat.value if failure.cheat else "unnamed"
    return f"a cheat ({kind}): less than an honest failure"
