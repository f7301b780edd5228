"""Goals, budgets, and the reasons why a run stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from pydantic import Field, JsonValue

from kernelwright.agent.loop.attempts import JudgedAttempt, best_of
from kernelwright.errors import InputError
from kernelwright.policies.base import Usage, Value
from kernelwright.store.models import Action


class StopReason(StrEnum):
    """The reasons why a run ended, or was paused."""

    TARGET = "target_reached"
    PLATEAU = "plateau"
    """The last turns made the best candidate no faster."""
    ROOFLINE = "near_roofline"
    """The best candidate is so near the speed of light that little is left to gain."""
    SAMPLES = "samples"
    """The requested number of drafts was judged."""
    STUCK = "stuck"
    """The policy repeats the same programs."""
    TURNS = "turns"
    TOKENS = "tokens"
    DOLLARS = "dollars"
    UNPRICED = "unpriced"
    """A budget in dollars was set, and the policy's price is not known."""
    WALL = "wall"
    GPU_SECONDS = "gpu_seconds"
    FORMAT_ERRORS = "format_errors"
    """Several replies in a row held no whole program."""
    PROBLEM = "problem"
    """The reference itself cannot be used."""
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    """The policy refuses: the user must change something first."""
    INFRASTRUCTURE = "infrastructure"
    """This machine failed, or the server did."""


PAUSING_REASONS = frozenset({StopReason.INTERRUPTED, StopReason.REFUSED, StopReason.INFRASTRUCTURE})
"""Reasons after which the same command continues at the exact turn."""

PLATEAU_TURNS = 4
"""Number of turns without progress that make a plateau."""
PROGRESS_SPEEDUP = 1.02
"""Smallest speedup over the best candidate that counts as progress: less is noise."""
NEAR_ROOFLINE_SHARE = 0.95
"""Share of the speed of light from which on nothing is left to gain."""
MAX_USELESS_REPLIES_IN_A_ROW = 3
"""Number of unreadable or repeated replies in a row that end a run."""


class GoalKind(StrEnum):
    """The quantity that a goal measures."""

    CORRECT = "correct"
    SPEEDUP = "speedup"
    """Speedup over eager PyTorch, by the lower bound of its 95 % interval. `eager` is an alias."""
    COMPILE = "compile"
    """Speedup over torch.compile, by the lower bound of its 95 % interval; by the lowest estimate
    if the two were not timed by the same method.
    """
    ROOFLINE = "roofline"
    """Share of the speed of light. `sol` is an alias."""


GOAL_KIND_ALIASES = {"eager": GoalKind.SPEEDUP, "sol": GoalKind.ROOFLINE}


class Goal(Value):
    """The goal of a run: a kind and, for all kinds but `correct`, a number."""

    kind: GoalKind = GoalKind.CORRECT
    value: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Parses `correct`, `eager:1.2` or `speedup:1.2`, `compile:1.1`, `sol:0.9` or `roofline:0.9`. Raises
        InputError.
        """
        kind, _, number = text.partition(":")
        try:
            goal = cls(
                kind=GOAL_KIND_ALIASES.get(kind) or GoalKind(kind),
                value=float(number) if number else 0.0,
            )
            fits = (goal.kind is GoalKind.CORRECT) == (not number) and 0 <= goal.value < 1e6
            fits = fits and (goal.kind is not GoalKind.ROOFLINE or 0 < goal.value <= 1)
        except ValueError:
            fits = False
        if not fits:
            raise InputError(f"--goal {text!r}: choose correct, eager:1.2, compile:1.1 or sol:0.9")
        return goal

    def __str__(self) -> str:
        return self.kind.value if self.kind is GoalKind.CORRECT else f"{self.kind}:{self.value:g}"

    def reached(self, attempt: JudgedAttempt) -> bool:
        """Returns whether the attempt reaches the goal. A speed that was not measured on a GPU
        reaches none.
        """
        if not attempt.correct or self.kind is GoalKind.CORRECT:
            return attempt.correct
        profile = attempt.report.profile if attempt.report else None
        if profile is None:
            return False
        # A goal is reached by the lower bound of an interval, so noise does not end a run early.
        lower = profile.speedup if profile.speedup_low is None else profile.speedup_low
        over_compiled = (
            profile.speedup_compiled_low,
            profile.speedup_compiled,
            profile.speedup_compiled_estimate,
        )
        measured = {
            GoalKind.SPEEDUP: lower,
            GoalKind.COMPILE: next((ratio for ratio in over_compiled if ratio is not None), None),
            GoalKind.ROOFLINE: profile.speed_of_light,
        }[self.kind]
        return measured is not None and measured >= self.value


class Budgets(Value):
    """The budgets of one trajectory. None: no limit."""

    turns: int | None = Field(default=10, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    gpu_seconds: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)
    minutes_unsolved: float | None = Field(default=None, gt=0)
    """Minutes of wall-clock time after which a run without a correct kernel ends."""


class Spent(Value):
    """The part of its budgets that a run has used so far."""

    turns: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """Dollars of the answers. None: a price is not known."""
    gpu_seconds: float = 0.0
    seconds: float = 0.0

    def plain(self) -> dict[str, JsonValue]:
        """Returns the used budgets in the form of a trajectory's row."""
        return self.model_dump(mode="json")


def sum_spent(
    attempts: Sequence[JudgedAttempt], seconds: float, lost: Sequence[Usage] = ()
) -> Spent:
    """Adds up the costs of turns.

    seconds: wall time, earlier calls included. lost: usage of charged answers without a reply.
    """
    answered = [a.usage for a in attempts if a.usage is not None and a.action is not Action.TUNE]
    tokens = 0
    dollars: float | None = 0.0
    for usage in (*answered, *lost):
        tokens += usage.prompt_tokens + usage.completion_tokens
        # One answer without a known price makes the sum unknown.
        if dollars is not None:
            dollars = None if usage.dollars is None else dollars + usage.dollars
    return Spent(
        turns=len(answered),
        tokens=tokens,
        dollars=dollars,
        gpu_seconds=sum(attempt.gpu_seconds for attempt in attempts),
        seconds=seconds,
    )


def sum_usages(usages: Sequence[Usage | None]) -> Usage | None:
    """Returns the sum of the usages that are not None; None if there is no usage at all."""
    total: Usage | None = None
    for usage in usages:
        if usage is not None:
            total = usage if total is None else total.plus(usage)
    return total


def exhausted_budget(budgets: Budgets, spent: Spent, asking: bool) -> StopReason | None:
    """Returns the budget that forbids the next action. The time limit is handled in
    agent/loop/time_limit.py.

    asking: whether the action asks the policy; else it runs the tools on the last answer.
    """
    if budgets.gpu_seconds is not None and spent.gpu_seconds >= budgets.gpu_seconds:
        return StopReason.GPU_SECONDS
    if not asking:
        return None
    if budgets.turns is not None and spent.turns >= budgets.turns:
        return StopReason.TURNS
    if budgets.tokens is not None and spent.tokens >= budgets.tokens:
        return StopReason.TOKENS
    if budgets.dollars is not None and spent.dollars is None:
        return StopReason.UNPRICED
    if budgets.dollars is not None and (spent.dollars or 0.0) >= budgets.dollars:
        return StopReason.DOLLARS
    return None


def describe_budget_left(budgets: Budgets, spent: Spent) -> str:
    """Describes the rest of the budget in words, for the policy and for the user."""
    clauses = []
    if budgets.turns is not None:
        turns_left = budgets.turns - spent.turns
        clauses.append(
            "this is the last turn"
            if turns_left <= 1
            else f"{turns_left} turns are left, this one among them"
        )
    if budgets.tokens is not None:
        clauses.append(f"about {max(budgets.tokens - spent.tokens, 0):,} tokens are left")
    if budgets.dollars is not None and spent.dollars is not None:
        clauses.append(f"${max(budgets.dollars - spent.dollars, 0.0):.2f} are left")
    if budgets.gpu_seconds is not None:
        clauses.append(
            f"{max(budgets.gpu_seconds - spent.gpu_seconds, 0.0):.0f} s of GPU time are left"
        )
    if budgets.minutes is not None:
        clauses.append(f"{max(budgets.minutes - spent.seconds / 60, 0.0):.0f} minutes are left")
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def reason_to_finish(goal: Goal, attempts: Sequence[JudgedAttempt]) -> StopReason | None:
    """Returns the reason to end the run that follows from the verdicts so far."""
    best = best_of(attempts)
    if any(goal.reached(attempt) for attempt in attempts):
        return StopReason.TARGET
    profile = best.report.profile if best is not None and best.report else None
    if profile is not None and (profile.speed_of_light or 0.0) >= NEAR_ROOFLINE_SHARE:
        return StopReason.ROOFLINE
    if _in_a_row(attempts, lambda attempt: attempt.unreadable):
        return StopReason.FORMAT_ERRORS
    if _in_a_row(attempts, lambda attempt: attempt.repeats is not None):
        return StopReason.STUCK
    if best is not None and _turns_since_progress(attempts) >= PLATEAU_TURNS:
        return StopReason.PLATEAU
    return None


def _in_a_row(attempts: Sequence[JudgedAttempt], holds: Callable[[JudgedAttempt], bool]) -> bool:
    policy_attempts = [attempt for attempt in attempts if attempt.action is not Action.TUNE]
    if len(policy_attempts) < MAX_USELESS_REPLIES_IN_A_ROW:
        return False
    return all(holds(attempt) for attempt in policy_attempts[-MAX_USELESS_REPLIES_IN_A_ROW:])


def _turns_since_progress(attempts: Sequence[JudgedAttempt]) -> int:
    """Counts the turns since the last progress: the first correct candidate, or a noticeably
    faster candidate.
    """
    fastest: float | None = None
    turns_without_progress = 0
    for attempt in attempts:
        # A turn of TUNE does not ask the policy: not counted, but it may be progress.
        turns_without_progress += attempt.action is not Action.TUNE
        speed = attempt.speedup or 0.0
        if attempt.correct and (fastest is None or speed > fastest * PROGRESS_SPEEDUP):
            fastest, turns_without_progress = speed, 0
    return turns_without_progress
