"""Estimates when a verdict ends, from the seconds that the newest verdicts took."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from kernelwright.agent.judging.pool import DeviceKind

VERDICTS_OF_AN_ESTIMATE = 50
"""Verdicts that an estimate is made of."""


class VerdictSeconds:
    """The seconds of the newest verdicts by kind of device. Appending and reading need no lock."""

    def __init__(self, recent_seconds: Callable[[DeviceKind], Sequence[float]]) -> None:
        """recent_seconds: the durations that an earlier server recorded."""
        self._seconds = {
            kind: deque(recent_seconds(kind), VERDICTS_OF_AN_ESTIMATE) for kind in DeviceKind
        }

    def add(self, device: DeviceKind, seconds: float) -> None:
        """Notes the duration of a verdict."""
        self._seconds[device].append(seconds)

    def mean(self, device: DeviceKind) -> float | None:
        """Returns the mean of the newest durations; None before the first."""
        seconds = self._seconds[device]
        return statistics.fmean(seconds) if seconds else None

    def until_end(
        self, device: DeviceKind, started: float | None, position: int | None, capacity: int
    ) -> float | None:
        """Returns the estimated seconds until a verdict ends; None before the first verdict.

        started: when a judge began it, in seconds since 1970. position: its place in the line, None where a judge has
        begun it. capacity: verdicts that the judges make side by side.
        """
        mean = self.mean(device)
        if mean is None:
            return None
        if position is not None:
            return mean * (1.0 + position / max(1, capacity))
        return max(0.0, mean - (time.time() - (started or time.time())))
