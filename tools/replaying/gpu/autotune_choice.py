"""Selects the fastest configuration of autotuned launches at a size, by timing each alternative
within the whole call.

Example: a call with two autotuned launches of 3 and 2 configurations takes three turns. Turn 0
times alternatives {0: 0, 1: 0}, turn 1 {0: 1, 1: 1}, turn 2 {0: 2, 1: 0}. The result {0: {0: 0.8,
1: 0.5, 2: 0.9}, 1: {0: 0.2, 1: 0.3}}, in milliseconds, ranks as {0: [1, 0, 2], 1: [0, 1]}.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelwright.tools.faults import Failed, Fault
from kernelwright.tools.gpu.stopwatch import StepTimes
from kernelwright.tools.trace.trace import Choice, Step

CALLS_PER_ALTERNATIVE = 3
"""Calls per alternative; the first is not counted."""
_NOT_LAUNCHED = (Fault.RESOURCES, Fault.COMPILE)
"""Faults for which a configuration is skipped, as Triton's autotuner does: the GPU lacks the
resources."""

TimedCall = Callable[[Mapping[int, int], StepTimes], None]
"""Runs a call with an alternative for each choice, times its steps, and synchronises the device."""


def choices_of(steps: Sequence[Step]) -> dict[int, Choice]:
    """Returns the autotuned launches among the steps, numbered from 0."""
    return dict(enumerate(step for step in steps if isinstance(step, Choice)))


def time_alternatives(
    call: TimedCall, choices: Mapping[int, Choice], seconds: float
) -> dict[int, dict[int, float]]:
    """Returns milliseconds by choice and alternative.

    Alternatives that cannot be launched, or that were not reached within `seconds`, are missing.
    All choices advance together: n alternatives take n turns, for any number of choices. Raises
    Failed for other errors of a call.
    """
    times: dict[int, dict[int, float]] = {number: {} for number in choices}
    deadline = time.monotonic() + seconds
    for turn in range(max((len(c.alternatives) for c in choices.values()), default=0)):
        alternatives = {number: turn % len(c.alternatives) for number, c in choices.items()}
        times_of_turn = _timed(call, choices, alternatives) or _timed_singly(
            call, choices, times, alternatives
        )
        for number, ms in times_of_turn.items():
            times[number].setdefault(alternatives[number], ms)
        if time.monotonic() > deadline:
            break
    return times


def ranked(times: Mapping[int, Mapping[int, float]]) -> dict[int, list[int]]:
    """Returns the alternatives of each choice, fastest first."""
    return {
        number: sorted(times_of_choice, key=lambda k: times_of_choice[k])
        for number, times_of_choice in times.items()
    }


def _timed_singly(
    call: TimedCall,
    choices: Mapping[int, Choice],
    times: Mapping[int, Mapping[int, float]],
    alternatives: Mapping[int, int],
) -> dict[int, float]:
    """Times alternatives separately, beside the fastest known ones of other choices, after a launch
    was refused."""
    best = {number: min(timed, key=lambda k: timed[k]) for number, timed in times.items() if timed}
    times_of_turn: dict[int, float] = {}
    for number, index in alternatives.items():
        if set(choices) - set(best) - {number}:
            continue
        if timed := _timed(call, choices, {**best, number: index}):
            times_of_turn[number] = timed[number]
    return times_of_turn


def _timed(
    call: TimedCall, choices: Mapping[int, Choice], alternatives: Mapping[int, int]
) -> dict[int, float] | None:
    """Returns milliseconds of each choice's alternative. None if a launch is refused."""
    owner = {
        id(step): number
        for number, c in choices.items()
        for step in c.alternatives[alternatives[number]]
    }
    totals: dict[int, list[float]] = {number: [] for number in choices}
    for _ in range(CALLS_PER_ALTERNATIVE):
        steps = StepTimes(lambda step: id(step) in owner)
        try:
            call(alternatives, steps)
        except Failed as failed:
            if failed.failure.fault in _NOT_LAUNCHED:
                return None
            raise
        sums: dict[int, float] = dict.fromkeys(choices, 0.0)
        for step, ms in steps.step_times():
            sums[owner[id(step)]] += ms
        for number, total in sums.items():
            totals[number].append(total)
    return {number: statistics.median(values[1:]) for number, values in totals.items()}


def as_rows(values: Mapping[int, Any]) -> list[list[Any]]:
    """Converts a dict with integer keys to JSON rows."""
    return [
        [number, list(value.items()) if isinstance(value, dict) else value]
        for number, value in values.items()
    ]
