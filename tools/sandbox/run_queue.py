"""Measures how long a candidate's process waited for a processor: this time does not count
against its time limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from kernelwright.tools.sandbox.channel import Message

MIN_SECONDS_PER_ANSWER = 0.01
"""Shortest wait for an answer after all time is used: the answer may have arrived already."""
MAX_UNEXAMINED_SECONDS = 1.0
"""Answer time which counts in full, without asking the kernel for waiting times, until a longer
answer is examined.
"""
MAX_QUEUE_SHARE_OF_LIMIT = 3.0
"""Maximum extension of a limit, as a multiple of the limit, on a busy machine."""


def run_queue_seconds(pids: Iterable[int]) -> float:
    """Returns the seconds for which the first thread of each process was ready to run while
    others ran, the maximum over the processes; 0.0 if the kernel does not report it
    (/proc/PID/schedstat: running, waiting, slices).
    """
    waits = [0.0]
    for pid in pids:
        try:
            waits.append(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9)
        except (OSError, ValueError, IndexError):
            continue
    return max(waits)


class AnsweringProcess(Protocol):
    """Process, as needed by this module (`tools.sandbox.process.Process`)."""

    def receive(self, seconds: float) -> Message:
        """Returns the next message of the process."""

    def waited(self) -> float:
        """Returns the seconds for which the process waited for a processor so far."""


class RemainingSeconds:
    """Time budget of a process for several answers, without the time spent waiting for a
    processor. Waiting times are read after long answers only.
    """

    def __init__(
        self, process: AnsweringProcess, seconds: float, *, waited_before: float = 0.0
    ) -> None:
        """Starts the budget. waited_before: result of `run_queue_seconds` for a process which has
        worked for another caller.
        """
        self._process = process
        self._seconds = seconds
        self._waited = waited_before
        self.remaining = seconds

    def receive(self, most: float = math.inf) -> Message:
        """Returns the next message, within the remaining budget and at most `most` seconds.
        Raises the errors of `Process.receive`.
        """
        begun = time.monotonic()
        try:
            return self._process.receive(max(min(self.remaining, most), MIN_SECONDS_PER_ANSWER))
        finally:
            elapsed = time.monotonic() - begun
            if elapsed > MAX_UNEXAMINED_SECONDS:
                waited = self._process.waited()
                elapsed, self._waited = elapsed - (waited - self._waited), waited
            self.remaining = min(self.remaining - elapsed, self._seconds)
