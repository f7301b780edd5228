"""Measures how long a candidate's process has waited for a processor: time that a busy machine takes from it is not
counted against it.
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
"""An answer that came within so long counts in full until a long one is looked at."""
MAX_QUEUE_SHARE_OF_LIMIT = 3.0
"""Largest extension of a limit, as a multiple of it, however busy the machine is."""


def run_queue_seconds(pids: Iterable[int]) -> float:
    """Seconds that the first thread of each process has been ready to run while others ran, the longest of them; 0.0
    where the kernel does not say (/proc/PID/schedstat: running, waiting, slices).
    """
    found = [0.0]
    for pid in pids:
        try:
            found.append(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9)
        except (OSError, ValueError, IndexError):
            continue
    return max(found)


class AnsweringProcess(Protocol):
    """A process as this module needs it (`tools.sandbox.process.Process`)."""

    def receive(self, seconds: float) -> Message:
        """Returns the next message."""

    def waited(self) -> float:
        """Returns the seconds that it has waited for a processor so far."""


class RemainingSeconds:
    """Seconds that a process may take for several answers. Those in which it waited for a processor do not count; they
    are asked for where an answer took long.
    """

    def __init__(
        self, process: AnsweringProcess, seconds: float, *, waited_before: float = 0.0
    ) -> None:
        """waited_before: the result of `run_queue_seconds` for a process that has already worked for another caller."""
        self._process, self._seconds, self._waited = process, seconds, waited_before
        self.left = seconds

    def receive(self, most: float = math.inf) -> Message:
        """Returns the next message; the process has the time that is left for it, at most `most`. Raises what
        `Process.receive` raises.
        """
        begun = time.monotonic()
        try:
            return self._process.receive(max(min(self.left, most), MIN_SECONDS_PER_ANSWER))
        finally:
            taken = time.monotonic() - begun
            if taken > MAX_UNEXAMINED_SECONDS:
                waited = self._process.waited()
                taken, self._waited = taken - (waited - self._waited), waited
            self.left = min(self.left - taken, self._seconds)
