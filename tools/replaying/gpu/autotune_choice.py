"""Which configuration of an autotuned launch is the fastest at this size: every alternative is timed in its place
among the call's other steps.
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
"""Calls an alternative, the first of which is not counted."""
_NOT_LAUNCHED = (Fault.RESOURCES, Fault.COMPILE)
"""Faults of a configuration that is left out, as Triton's autotuner leaves it out: the GPU has too few resources for
it.
"""

TimedCall = Callable[[Mapping[int, int], StepTimes], None]
"""Runs one call with an alternative for each choice, its steps timed, and waits for the device."""


def choices_of(steps: Sequence[Step]) -> dict[int, Choice]:
    """The launches that choose a configuration, by their number among the choices of these steps, from 0."""
    return dict(enumerate(step for step in steps if isinstance(step, Choice)))


def time_alternatives(
    call: TimedCall, choices: Mapping[int, Choice], seconds: float
) -> dict[int, dict[int, float]]:
    """Milliseconds by choice and alternative.

    Missing are those that cannot be launched, and those that were not reached in `seconds`.

    All choices advance together, so that n alternatives take n turns however many choices there are. Raises Failed for
    what ends a call otherwise.
    """
    times: dict[int, dict[int, float]] = {number: {} for number in choices}
    deadline = time.monotonic() + seconds
    for turn in range(max((len(c.alternatives) for c in choices.values()), default=0)):
        taken = {number: turn % len(c.alternatives) for number, c in choices.items()}
        found = _timed(call, choices, taken) or _timed_singly(call, choices, times, taken)
        for number, ms in found.items():
            times[number].setdefault(taken[number], ms)
        if time.monotonic() > deadline:
            break
    return times


def ranked(times: Mapping[int, Mapping[int, float]]) -> dict[int, list[int]]:
    """The alternatives of each choice, fastest first."""
    return {number: sorted(found, key=lambda k: found[k]) for number, found in times.items()}


def _timed_singly(
    call: TimedCall,
    choices: Mapping[int, Choice],
    times: Mapping[int, Mapping[int, float]],
    taken: Mapping[int, int],
) -> dict[int, float]:
    """One of these alternatives cannot be launched: each by itself beside the fastest that are known of the other
    choices.
    """
    best = {number: min(found, key=lambda k: found[k]) for number, found in times.items() if found}
    told: dict[int, float] = {}
    for number, index in taken.items():
        if set(choices) - set(best) - {number}:
            continue
        if found := _timed(call, choices, {**best, number: index}):
            told[number] = found[number]
    return told


def _timed(
    call: TimedCall, choices: Mapping[int, Choice], taken: Mapping[int, int]
) -> dict[int, float] | None:
    """Milliseconds of the steps of each choice's alternative. None where one of them cannot be launched."""
    owner = {
        id(step): number for number, c in choices.items() for step in c.alternatives[taken[number]]
    }
    found: dict[int, list[float]] = {number: [] for number in choices}
    for _ in range(CALLS_PER_ALTERNATIVE):
        steps = StepTimes(lambda step: id(step) in owner)
        try:
            call(taken, steps)
        except Failed as failed:
            if failed.failure.fault in _NOT_LAUNCHED:
                return None
            raise
        sums: dict[int, float] = dict.fromkeys(choices, 0.0)
        for step, ms in steps.told():
            sums[owner[id(step)]] += ms
        for number, total in sums.items():
            found[number].append(total)
    return {number: statistics.median(values[1:]) for number, values in found.items()}


def as_rows(found: Mapping[int, Any]) -> list[list[Any]]:
    """A dict with whole numbers as keys, as JSON."""
    return [
        [number, list(value.items()) if isinstance(value, dict) else value]
        for number, value in found.items()
    ]
