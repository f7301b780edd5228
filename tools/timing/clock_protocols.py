"""Protocols of the objects used by a measurement: the GPU, the process which replays the
candidate, and the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kernelwright.tools.report import Neighbour, Timing, TimingMethod


class ReplayChannel(Protocol):
    """The part of tools/replaying/replayer.py that the clock uses."""

    def ask(
        self, message: dict[str, Any], *, seconds: float, shared: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Sends a message about the opened trace and returns the answer. Raises Failed."""


class TimedReference(Protocol):
    """The part of tools/timing/reference_clock.py that the clock uses."""

    method: TimingMethod
    """The method of the blocks since the reference was opened."""
    why: str
    """Why it could not be captured."""
    host_us: float
    """Host time for launching a call without a graph, in microseconds."""

    def open(self, method: TimingMethod = TimingMethod.GRAPH) -> None:
        """Prepares the reference for timing by a method; falls back from GRAPH to QUEUED if the
        reference cannot be captured.
        """

    def block(self, calls: int) -> list[float]:
        """Milliseconds of each of so many calls."""

    @property
    def record(self) -> Timing:
        """Returns the reference's time of record, measured if unknown."""

    def time_anew(self) -> None:
        """Measures the time of record again, because the clocks of the GPU have changed."""

    def release(self) -> None:
        """Gives the memory of captured graphs back."""

    def release_if_large(self) -> None:
        """Frees captured graphs if they take much memory."""


class TimedGpu(Protocol):
    """The part of tools/timing/clock.py that a measurement uses."""

    name: str
    uuid: str
    """UUID of the GPU; empty if the driver does not report it."""
    flush_ms: float

    def refuse_a_shared_gpu(self) -> None:
        """Raises InfrastructureError if another program's work distorts measurements."""

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Other GPUs of this machine that are at work now."""
