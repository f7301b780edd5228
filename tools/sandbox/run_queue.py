"""How long a candidate's process has waited for a processor: what a busy machine takes from it is not counted against
it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from kernelwright.tools.sandbox.channel import Message

LEAST_SECONDS = 0.01
"""That an answer gets where nothing is left: it may lie there already."""
SHORT_SECONDS = 1.0
"""An answer that came within so long counts in full until a long one is looked at."""
MAX_LOST_SHARE = 3.0
"""Of a limit: so much more is waited at most, however busy the machine is."""


def waited(pids: Iterable[int]) -> float:
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


class Answers(Protocol):
    """A process as this module needs it (`tools.sandbox.process.Process`)."""

    def receive(self, seconds: float) -> Message:
        """The next message."""

    def waited(self) -> float:
        """Returns the seconds that it has waited for a processor so far."""


class TimeLeft:
    """Seconds that a process may take for several answers. Those in which it waited for a processor do not count; they
    are asked for where an answer took long.
    """

    def __init__(self, process: Answers, seconds: float, *, waited_before: float = 0.0) -> None:
        """waited_before: what `waited` said where the process has worked for somebody else."""
        self._process, self._seconds, self._waited = process, seconds, waited_before
        self.left = seconds

    def receive(self, most: float = math.inf) -> Message:
        """The next message, for which the process has what is left, and `most`. Raises what `Process.receive`
        raises.
        """
        begun = time.monotonic()
        try:
            return self._process.receive(max(min(self.left, most), LEAST_SECONDS))
        finally:
            taken = time.monotonic() - begun
            if taken > SHORT_SECONDS:
                waited = self._process.waited()
                taken, self._waited = taken - (waited - self._waited), waited
            self.left = min(self.left - taken, self._seconds)
