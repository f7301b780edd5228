"""Estimates the end of verdicts from the durations of the newest verdicts."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from kernelwright.agent.judging.pool import DeviceKind

VERDICTS_OF_AN_ESTIMATE = 50
"""Number of verdicts behind an estimate."""


class VerdictSeconds:
    """The seconds of the newest verdicts by kind of device. Appending and reading need no lock."""

    def __init__(self, recent_seconds: Callable[[DeviceKind], Sequence[float]]) -> None:
        """recent_seconds: returns the durations recorded by an earlier server, in seconds."""
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
        """Returns the estimated seconds until the end of a verdict; None before the first verdict.

        started: its start at a judge, in seconds since 1970. position: number in the line; None for
        a running verdict. capacity: number of verdicts in parallel.
        """
        mean = self.mean(device)
        if mean is None:
            return None
        if position is not None:
            return mean * (1.0 + position / max(1, capacity))
        return max(0.0, mean - (time.time() - (started or time.time())))
