"""Verdicts under way at judges, with their wall-clock limits.

A judge's signs of life come from a separate thread, so a hanging verdict never makes the judge
silent. Only a clock outside of the judge ends such a verdict, together with the judge's process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from kernelwright.agent.judging.pool import DeviceKind, JudgePool, VerdictCancelled, VerdictOverdue
from kernelwright.tools.report import Report

DEFAULT_VERDICT_SECONDS = 600.0
"""Wall-clock limit of a verdict at a judge, in seconds."""
CANCEL_GRACE_SECONDS = 5.0
"""Seconds for a cancelled verdict to stop at its next step, before its judge is ended."""
CLOCK_TICK_SECONDS = 0.5
"""Seconds between two looks at the running verdicts."""


@dataclass
class PlacedVerdict:
    """Verdict handed to the pool."""

    device: DeviceKind
    future: Future[Report]
    doing: str = "waiting for a judge"
    began_at: float | None = None
    """Start at a judge, on the monotonic clock; None before."""
    judge: str = ""
    """Name of the judge."""
    cancelled_at: float | None = None
    """Withdrawal of the last interested client, on the monotonic clock."""


class RunningVerdicts:
    """Not thread-safe but for its clock: the service holds `lock`, which the clock takes, too."""

    def __init__(self, pool: JudgePool, lock: threading.RLock, verdict_seconds: float) -> None:
        """verdict_seconds: wall-clock limit of a verdict, from its start at a judge."""
        self._pool, self._lock, self._seconds = pool, lock, verdict_seconds
        self._verdicts: dict[str, PlacedVerdict] = {}
        self._closed = threading.Event()

    def start_clock(self) -> None:
        """Starts the thread that ends overdue verdicts."""
        threading.Thread(target=self._watch, name="verdict clock", daemon=True).start()

    def close(self) -> None:
        """Stops the clock."""
        self._closed.set()

    def add(
        self, verdict_id: str, device: DeviceKind, submit: Callable[[], Future[Report]]
    ) -> Future[Report]:
        """Adds a verdict, then calls `submit`, because the pool may begin the verdict at once.
        Returns its future.
        """
        self._verdicts[verdict_id] = running = PlacedVerdict(device, Future())
        try:
            running.future = submit()
        except BaseException:
            self.remove(verdict_id)
            raise
        return running.future

    def begin(self, verdict_id: str, judge: str) -> None:
        """Starts the clock of a verdict at its start by a judge."""
        if (running := self._verdicts.get(verdict_id)) is not None:
            running.began_at, running.judge = time.monotonic(), judge

    def by_judge(self) -> dict[str, list[tuple[str, str, float]]]:
        """Returns the running verdicts of each busy judge: id, step, and seconds since the start."""
        now = time.monotonic()
        verdicts: dict[str, list[tuple[str, str, float]]] = {}
        for verdict_id, running in self._verdicts.items():
            if running.began_at is not None:
                verdicts.setdefault(running.judge, []).append(
                    (verdict_id, running.doing, now - running.began_at)
                )
        return verdicts

    def set_step(self, verdict_id: str, doing: str) -> None:
        """Stores the current step of a verdict."""
        if (running := self._verdicts.get(verdict_id)) is not None:
            running.doing = doing

    def step(self, verdict_id: str) -> str:
        """Returns the current step of a verdict; empty if not running."""
        running = self._verdicts.get(verdict_id)
        return running.doing if running is not None else ""

    def cancel(self, verdict_id: str) -> None:
        """Stops a verdict at its next step, or with its judge after CANCEL_GRACE_SECONDS."""
        running = self._verdicts.get(verdict_id)
        if running is not None and running.cancelled_at is None:
            running.cancelled_at = time.monotonic()
            self._pool.cancel(running.future)

    def age(self, verdict_id: str) -> float:
        """Returns the seconds since a judge began a verdict; 0 if none has."""
        running = self._verdicts.get(verdict_id)
        if running is None or running.began_at is None:
            return 0.0
        return time.monotonic() - running.began_at

    def remove(self, verdict_id: str) -> None:
        """Removes an ended verdict."""
        self._verdicts.pop(verdict_id, None)

    def count(self, device: DeviceKind) -> int:
        """Returns how many verdicts of a kind of device are running."""
        return sum(running.device is device for running in self._verdicts.values())

    def _watch(self) -> None:
        while not self._closed.wait(CLOCK_TICK_SECONDS):
            with self._lock:
                verdicts = list(self._verdicts.values())
            now = time.monotonic()
            for running in verdicts:
                self._end_if_late(running, now)

    def _end_if_late(self, running: PlacedVerdict, now: float) -> None:
        if running.began_at is not None and now - running.began_at > self._seconds:
            message = (
                f"the verdict took more than {self._seconds:g} s (it was at: {running.doing}), and its judge was "
                "ended: give a smaller problem, or start the server with a larger --verdict-seconds"
            )
            self._pool.end(running.future, VerdictOverdue(message))
        elif running.cancelled_at is not None and now - running.cancelled_at > CANCEL_GRACE_SECONDS:
            self._pool.end(running.future, VerdictCancelled("nobody wants this verdict any more"))
