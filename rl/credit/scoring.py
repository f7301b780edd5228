"""Turns one verdict into the parts of a reward, and explains each part in words."""

from __future__ import annotations

import math
import random

from kernelwright.policies.base import FinishReason, Value
from kernelwright.rl.credit.formula import Formula, RewardPart, SpeedScale
from kernelwright.store.records import Turn
from kernelwright.tools.report import CorrectnessResult, Fault, Report, Rung

FAULTS_THAT_BREAK_THE_RULE = frozenset(
    {Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT, Fault.NO_KERNEL, Fault.FALLBACK, Fault.CHEAT}
)
"""Faults of form and of whose work it is: with these everything else is worth nothing."""
FAULTS_BEFORE_A_LAUNCH = frozenset({Fault.IMPORT, Fault.COMPILE, Fault.RESOURCES, Fault.LAUNCH})
"""Faults that come before any kernel ran."""


class ReplyForm(Value):
    """The form of the answer, as far as a reward looks at it."""

    finish: FinishReason | None = None
    tokens: int = 0


class ScoredVerdict(Value):
    """The parts of one reward and why each is what it is. `kept` is False where the formula rejects the sample."""

    parts: dict[str, float]
    words: dict[str, str]
    kept: bool = True

    @property
    def total(self) -> float:
        """Returns the sum of the parts, rounded once."""
        return math.fsum(self.parts.values())


def reply_of(turn: Turn) -> ReplyForm:
    """Returns what the formula needs of a turn's reply: how it ended, and its length in tokens."""
    completion = turn.completion
    if completion is None:
        return ReplyForm()
    return ReplyForm(finish=completion.finish, tokens=completion.usage.completion_tokens)


def score(formula: Formula, report: Report, reply: ReplyForm | None = None) -> ScoredVerdict:
    """Returns the reward of one verdict. The function is pure: the same report, reply and formula always give the same
    parts.
    """
    reply = reply or ReplyForm()
    values: dict[RewardPart, tuple[float, str]] = {
        RewardPart.FORM: _form(formula, report),
        RewardPart.COMPILE: _compile(formula, report),
        RewardPart.CHECKS: _checks(formula, report),
        RewardPart.CORRECT: _correct(formula, report),
        RewardPart.SPEED: _speed(formula, report),
        RewardPart.SHARE: _share(formula, report),
        RewardPart.LENGTH: _length(formula, reply),
        RewardPart.CHEAT: _cheat(formula, report),
    }
    return ScoredVerdict(
        parts={part.value: value for part, (value, _) in values.items()},
        words={part.value: why for part, (_, why) in values.items()},
        kept=_kept(formula, report),
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


def on_gpu(report: Report) -> bool:
    """Whether the verdict is a GPU's, at full shapes."""
    return report.judged_on not in ("", "cpu")


def _verdict(report: Report) -> CorrectnessResult | None:
    return report.correctness or report.interpreted


def _form(formula: Formula, report: Report) -> tuple[float, str]:
    if follows_the_rule(report):
        return formula.form, "the reply holds a program with its own kernels"
    assert report.failure is not None
    return (
        0.0,
        f"the rule is broken ({report.failure.fault.value}): compile, checks, correct, speed and share count nothing",
    )


def _compile(formula: Formula, report: Report) -> tuple[float, str]:
    if not follows_the_rule(report):
        return 0.0, "not counted: the rule is broken"
    return (formula.compile, "its kernels compile") if compiled(report) else (0.0, "it does not compile")


def _checks(formula: Formula, report: Report) -> tuple[float, str]:
    result = _verdict(report)
    if not follows_the_rule(report) or result is None or not result.checks:
        return 0.0, "no check was made that counts"
    passed = sum(check.passed for check in result.checks)
    made = len(result.checks) + (0 if report.correct or passed < len(result.checks) else 1)
    return formula.checks * passed / made, f"{passed} of {made} checks made were passed"


def _narrow(formula: Formula, report: Report) -> str:
    """Returns why a correct kernel earns no full reward; empty where the formula pays one."""
    return "" if formula.rewards_narrow_contracts or not report.correct else report.narrow_contract


def _correct(formula: Formula, report: Report) -> tuple[float, str]:
    if why := _narrow(formula, report):
        return 0.0, f"no full reward: {why}"
    if report.correct and follows_the_rule(report):
        return formula.correct, f"right on every check ({report.judged_on or 'not said where'})"
    why = report.failure.fault.value if report.failure else "never judged for correctness"
    return 0.0, f"not correct: {why}"


def _measured(report: Report) -> str:
    """Returns the reason why speed and share cannot be rewarded; empty where they can."""
    if not report.correct or not follows_the_rule(report):
        return "counts only for a correct kernel"
    if not on_gpu(report) or report.profile is None:
        return (
            "not measured: the verdict is a CPU's" if not on_gpu(report) else "not measured: no profile was asked for"
        )
    return "not measured: the profile failed" if report.profile.failure else ""


def _speed(formula: Formula, report: Report) -> tuple[float, str]:
    if why := _narrow(formula, report) or _measured(report):
        return 0.0, why
    assert report.profile is not None
    lower = report.profile.speedup_low if report.profile.speedup_low is not None else report.profile.speedup
    if lower is None or not math.isfinite(lower) or lower <= 0:
        return 0.0, "not measured: no finite speedup"
    clipped = min(max(lower, formula.slowest), formula.fastest)
    worth = math.log2(clipped) if formula.scale is SpeedScale.LOG2 else clipped
    note = "" if clipped == lower else f", counted as {clipped:g}"
    return formula.speed * worth, f"{lower:.3g} times eager PyTorch at the lower 95 % bound{note}"


def _own_share(report: Report) -> float | None:
    share = report.profile.own_share if report.profile else None
    return None if share is None or not math.isfinite(share) else min(max(share, 0.0), 1.0)


def _share(formula: Formula, report: Report) -> tuple[float, str]:
    if why := _narrow(formula, report) or _measured(report):
        return 0.0, why
    share = _own_share(report)
    if share is None:
        return 0.0, "not measured: the profiler named no kernels"
    return formula.share * share, f"{share:.0%} of GPU time is in its own kernels"


def _length(formula: Formula, reply: ReplyForm) -> tuple[float, str]:
    if reply.finish is FinishReason.LENGTH:
        return formula.length, f"the reply was cut off after {reply.tokens} tokens"
    return 0.0, "the reply ended by itself" if reply.finish else "nothing is known of the reply"


def _cheat(formula: Formula, report: Report) -> tuple[float, str]:
    failure = report.failure
    if failure is None or failure.fault is not Fault.CHEAT:
        return 0.0, "no cheat was found"
    kind = failure.cheat.value if failure.cheat else "unnamed"
    return formula.cheat, f"a cheat ({kind}): less than an honest failure"


def _kept(formula: Formula, report: Report) -> bool:
    """Rejection of correct samples that leave the work to others; the die is the candidate's own hash, so that it
    falls the same way each time.
    """
    if formula.least_share is None or not report.correct:
        return True
    share = _own_share(report)
    if share is None:
        return False
    chance = min(max((share - formula.least_share) / 0.1, 0.0), 1.0)
    return random.Random(report.candidate_hash).random() < chance
