"""Alarms of a training, with their bounds. The last checkpoint and the log are complete when an
alarm is raised.

Example of a collapsed entropy: steps with 0.5, 0.1, 0.001, 0.001, 0.001, 0.001, 0.001 nats a token.
The mean of the last five is 0.001, below the bound of 0.002, and an earlier step was above: the
training stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kernelwright.policies.base import Value
from kernelwright.rl.training.grpo.drift import MAX_KL_NATS_PER_TOKEN, MIN_EFFECTIVE_SAMPLE_SIZE
from kernelwright.tools.report import InfrastructureError


class Alarm(StrEnum):
    """A sign of a failing training."""

    NOT_FINITE = "not_finite"
    """The loss is NaN or infinite."""
    ENTROPY = "entropy_collapse"
    """The policy writes the same text for every prompt."""
    TAKEN_OVER = "taken_over"
    """The same program answers most of a batch's different problems, or nearly all rewarded rows.
    """
    TOO_FAST = "faster_than_physics"
    """A speed above the limits of memory and arithmetic."""
    CHEATS = "cheats"
    """Many candidates cheat."""
    WORN_OUT = "worn_out"
    """The policy has moved so far from the sampling policy that the log no longer describes it."""
    JUDGE = "judge"
    """The tools fail, or miss a cheat of the examination."""


class TrainingAlarm(InfrastructureError):
    """Stops a training. The message is one line with the observation and the advice."""

    def __init__(self, alarm: Alarm, message: str) -> None:
        super().__init__(message)
        self.alarm = alarm


class AlarmBounds(Value):
    """Bounds beyond which a figure raises an alarm."""

    entropy: float = 0.002
    """Smallest mean entropy of `entropy_steps` steps, in nats a token."""
    entropy_steps: int = 5
    same_program: float = 0.5
    """Largest share of a step's correct candidates over different problems with the same program.
    """
    cheats: float = 0.2
    """Largest share of cheats among a step's candidates."""
    effective: float = MIN_EFFECTIVE_SAMPLE_SIZE
    """Smallest effective sample size of a step's rows, as a share of their number, over
    `drift_steps` steps.
    """
    kl: float = MAX_KL_NATS_PER_TOKEN
    """Largest KL divergence from the sampling policy, in nats a token, over `drift_steps` steps."""
    drift_steps: int = 3
    """Number of consecutive steps beyond a drift limit that stop the training."""
    speed_of_light: float = 1.05
    least: int = 16
    """Smallest number of candidates for which a share is meaningful."""


class WatchedCandidate(Value):
    """The fields of a judged candidate that alarms check."""

    candidate_id: int
    problem_hash: str
    source_hash: str | None = None
    correct: bool = False
    cheat: bool = False
    speed_of_light: float | None = None


def check_step(candidates: Sequence[WatchedCandidate], limits: AlarmBounds) -> None:
    """Raises TrainingAlarm for an implausible step: impossible speed, many cheats, or the same
    program for many problems.
    """
    for candidate in candidates:
        speed = candidate.speed_of_light
        if candidate.correct and speed is not None and speed > limits.speed_of_light:
            raise TrainingAlarm(
                Alarm.TOO_FAST,
                f"candidate {candidate.candidate_id} runs at {speed:.0%} of the speed of light: "
                "look at it with `agent inspect`, and do not train on it",
            )
    if len(candidates) < limits.least:
        return
    cheats = [candidate for candidate in candidates if candidate.cheat]
    if len(cheats) > limits.cheats * len(candidates):
        raise TrainingAlarm(
            Alarm.CHEATS,
            f"{len(cheats)} of {len(candidates)} candidates are cheats, such as {cheats[0].candidate_id}: see "
            "the quarantine list, fine-tune first",
        )
    _check_taken_over(candidates, limits)


def _check_taken_over(candidates: Sequence[WatchedCandidate], limits: AlarmBounds) -> None:
    """Raises TrainingAlarm if the same program passes many different problems, since it cannot be
    a kernel for all of them.
    """
    problems_of: dict[str, set[str]] = {}
    example_of: dict[str, int] = {}
    solved_problems: set[str] = set()
    for candidate in candidates:
        if not candidate.correct:
            continue
        solved_problems.add(candidate.problem_hash)
        if candidate.source_hash:
            problems_of.setdefault(candidate.source_hash, set()).add(candidate.problem_hash)
            example_of.setdefault(candidate.source_hash, candidate.candidate_id)
    total = len(solved_problems)
    for source, problems in problems_of.items():
        if total >= 4 and len(problems) > max(2, limits.same_program * total):
            raise TrainingAlarm(
                Alarm.TAKEN_OVER,
                f"one program (candidate {example_of[source]}) passes {len(problems)} of {total} different "
                "problems: look at it before going on",
            )


def check_entropy(entropies: Sequence[float], limits: AlarmBounds) -> None:
    """Raises TrainingAlarm if the mean of the last steps fell below the limit after an earlier
    value above.
    """
    recent = entropies[-limits.entropy_steps :]
    if len(recent) < limits.entropy_steps or max(entropies) < limits.entropy:
        return
    mean = sum(recent) / len(recent)
    if mean < limits.entropy:
        raise TrainingAlarm(
            Alarm.ENTROPY,
            f"entropy fell to {mean:.4f} nats a token: go on from an earlier checkpoint with a smaller "
            "--set learning_rate=... or entropy_coef=0.001",
        )


def check_drift(effective: Sequence[float], limits: AlarmBounds, kl: Sequence[float] = ()) -> None:
    """Raises TrainingAlarm if the policy is too far from the sampling policy in each of the last
    steps.

    `effective`: effective sample size of each step, as a share of its rows. With fifty rows or
    fewer the share cannot fall below the limit, since a single row is a larger share. `kl`: nats
    a token of each step, for any number of rows.
    """
    steps = limits.drift_steps
    observations = []
    if len(effective) >= steps and max(effective[-steps:]) < limits.effective:
        observations.append(f"effective sample size {effective[-1]:.3f}")
    if len(kl) >= steps and min(kl[-steps:]) > limits.kl:
        observations.append(f"KL {kl[-1]:.2f} nats a token")
    if observations:
        raise TrainingAlarm(
            Alarm.WORN_OUT,
            f"{' and '.join(observations)} for {steps} steps: the policy has moved so far that "
            "the log says nothing of it; go on from an earlier checkpoint with a smaller "
            "--set learning_rate=..., or collect a new log",
        )
