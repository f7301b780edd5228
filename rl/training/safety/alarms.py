"""The alarms that stop a training. The last checkpoint and the log are complete when one does."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kernelwright.policies.base import Value
from kernelwright.rl.training.grpo.drift import MAX_KL_NATS_PER_TOKEN, MIN_EFFECTIVE_SAMPLE_SIZE
from kernelwright.tools.report import InfrastructureError


class Alarm(StrEnum):
    """A sign that a training goes wrong."""

    NOT_FINITE = "not_finite"
    """The loss is NaN or infinite."""
    ENTROPY = "entropy_collapse"
    """The policy answers the same text to every prompt."""
    TAKEN_OVER = "taken_over"
    """One program is the answer to most of a batch's different problems, or nearly all rewarded rows."""
    TOO_FAST = "faster_than_physics"
    """A speed that memory and arithmetic do not allow."""
    CHEATS = "cheats"
    """Many candidates are found cheating."""
    WORN_OUT = "worn_out"
    """The policy has moved so far from the one that sampled that the log no longer describes it."""
    JUDGE = "judge"
    """The tools fail, or do not see through a cheat that they must see through."""


class TrainingAlarm(InfrastructureError):
    """Stops a training. The message is one line: the observation and the advice."""

    def __init__(self, alarm: Alarm, message: str) -> None:
        super().__init__(message)
        self.alarm = alarm


class AlarmBounds(Value):
    """Bounds beyond which a jump is suspicious."""

    entropy: float = 0.002
    """Nats a token, a mean over some steps."""
    entropy_steps: int = 5
    same_program: float = 0.5
    """Share of a step's correct candidates over different problems that are one program."""
    cheats: float = 0.2
    """Share of a step's candidates."""
    effective: float = MIN_EFFECTIVE_SAMPLE_SIZE
    """Smallest effective sample size of a step's rows, as a share of their number, over `drift_steps` steps."""
    kl: float = MAX_KL_NATS_PER_TOKEN
    """Largest KL divergence from the policy that sampled, in nats a token, over `drift_steps` steps."""
    drift_steps: int = 3
    """Steps in a row that must break a drift limit before the training stops."""
    speed_of_light: float = 1.05
    least: int = 16
    """Candidates before a share means anything."""


class WatchedCandidate(Value):
    """One judged candidate, as far as an alarm looks at it."""

    candidate_id: int
    problem_hash: str
    source_hash: str | None = None
    correct: bool = False
    cheat: bool = False
    speed_of_light: float | None = None


def check_step(seen: Sequence[WatchedCandidate], limits: AlarmBounds) -> None:
    """Raises TrainingAlarm for what no honest step looks like."""
    for one in seen:
        if (
            one.correct
            and one.speed_of_light is not None
            and one.speed_of_light > limits.speed_of_light
        ):
            raise TrainingAlarm(
                Alarm.TOO_FAST,
                f"candidate {one.candidate_id} runs at {one.speed_of_light:.0%} of the speed of light: "
                "look at it with `agent inspect`, "
                "and do not train on it",
            )
    if len(seen) < limits.least:
        return
    cheats = [one for one in seen if one.cheat]
    if len(cheats) > limits.cheats * len(seen):
        raise TrainingAlarm(
            Alarm.CHEATS,
            f"{len(cheats)} of {len(seen)} candidates are cheats, such as {cheats[0].candidate_id}: see "
            "the quarantine list, fine-tune "
            "first",
        )
    _check_taken_over(seen, limits)


def _check_taken_over(seen: Sequence[WatchedCandidate], limits: AlarmBounds) -> None:
    """One program that is right for many different problems is no kernel for any of them."""
    problems: dict[str, set[str]] = {}
    for one in seen:
        if one.correct and one.source_hash:
            problems.setdefault(one.source_hash, set()).add(one.problem_hash)
    different = {one.problem_hash for one in seen if one.correct}
    for source, solved in problems.items():
        if len(different) >= 4 and len(solved) > max(2, limits.same_program * len(different)):
            example = next(
                one.candidate_id for one in seen if one.source_hash == source and one.correct
            )
            raise TrainingAlarm(
                Alarm.TAKEN_OVER,
                f"one program (candidate {example}) passes {len(solved)} of {len(different)} different "
                "problems: look at it before going on",
            )


def check_entropy(entropies: Sequence[float], limits: AlarmBounds) -> None:
    """Raises TrainingAlarm where the last steps' mean is below the limit, and it had been above."""
    recent = entropies[-limits.entropy_steps :]
    if len(recent) < limits.entropy_steps or max(entropies) < limits.entropy:
        return
    mean = sum(recent) / len(recent)
    if mean < limits.entropy:
        raise TrainingAlarm(
            Alarm.ENTROPY,
            f"entropy fell to {mean:.4f} nats a token: go on from an earlier checkpoint with a smaller "
            "--set learning_rate=... or "
            "entropy_coef=0.001",
        )


def check_drift(effective: Sequence[float], limits: AlarmBounds, kl: Sequence[float] = ()) -> None:
    """Stops a training whose policy has moved too far from the one that sampled the rows, in each of the last steps.

    `effective`: effective sample size of each step, as a share of its rows; of fifty rows and fewer it cannot fall
    below the limit, since one row alone is a larger share. `kl`: nats a token of each step, for any number of rows.
    Raises TrainingAlarm.
    """
    steps = limits.drift_steps
    found = []
    if len(effective) >= steps and max(effective[-steps:]) < limits.effective:
        found.append(f"effective sample size {effective[-1]:.3f}")
    if len(kl) >= steps and min(kl[-steps:]) > limits.kl:
        found.append(f"KL {kl[-1]:.2f} nats a token")
    if found:
        raise TrainingAlarm(
            Alarm.WORN_OUT,
            f"{' and '.join(found)} for {steps} steps: the policy has moved so far that the log says nothing of it; "
            "go on from an earlier checkpoint with a smaller --set learning_rate=..., or collect a new log",
        )
