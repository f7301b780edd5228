"""What a measurement needs of the GPU, of the process that replays the candidate, and of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kernelwright.tools.report import Neighbour, Timing, TimingMethod


class ReplayChannel(Protocol):
    """The part of tools/replaying/replayer.py that the clock uses."""

    def ask(
        self, message: dict[str, Any], *, seconds: float, shared: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Sends one message about the opened trace and returns the answer. Raises Failed."""


class TimedReference(Protocol):
    """The part of tools/timing/reference_clock.py that the clock uses."""

    method: TimingMethod
    """The method of the blocks since the reference was opened."""
    why: str
    """Why it could not be captured."""
    host_us: float
    """Microseconds that the host takes to launch one call without a graph."""

    def open(self, method: TimingMethod = TimingMethod.GRAPH) -> None:
        """Makes the reference ready to be timed by a method; QUEUED takes the place of GRAPH where it cannot be
        captured.
        """

    def block(self, calls: int) -> list[float]:
        """Milliseconds of each of so many calls."""

    @property
    def record(self) -> Timing:
        """The reference's time of record, measured where it is not known."""

    def time_anew(self) -> None:
        """Measures the time of record again, because the clocks of the GPU have changed."""

    def release(self) -> None:
        """Gives the memory of captured graphs back."""

    def release_if_large(self) -> None:
        """Gives the memory of captured graphs back where it is much."""


class TimedGpu(Protocol):
    """The part of tools/timing/clock.py that a measurement uses."""

    name: str
    uuid: str
    """Empty where the driver does not tell."""
    flush_ms: float

    def refuse_a_shared_gpu(self) -> None:
        """Raises InfrastructureError where another program's work lies in every measurement."""

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Other GPUs of this machine that are at work now."""
