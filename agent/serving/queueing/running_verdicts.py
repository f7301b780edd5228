"""The verdicts that judges are at work on, and the wall-clock limit of each.

A judge says that it lives from a thread of its own, so a verdict that hangs never makes it silent: only a clock outside
of the judge ends such a verdict, together with the judge's process.
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
"""Wall-clock seconds that a judge may spend on one verdict."""
CANCEL_GRACE_SECONDS = 5.0
"""Seconds that a cancelled verdict is given to stop at its next step; after that its judge is ended."""
CLOCK_TICK_SECONDS = 0.5
"""Seconds between two looks at the running verdicts."""


@dataclass
class PlacedVerdict:
    """A verdict that the pool was given."""

    device: DeviceKind
    future: Future[Report]
    doing: str = "waiting for a judge"
    began_at: float | None = None
    """When a judge began it, of the monotonic clock; None while it waits for one."""
    judge: str = ""
    """The name of the judge that began it."""
    cancelled_at: float | None = None
    """When the last client that wanted it withdrew, of the monotonic clock."""


class RunningVerdicts:
    """Not thread-safe but for its clock: the service holds `lock`, which the clock takes, too."""

    def __init__(self, pool: JudgePool, lock: threading.RLock, verdict_seconds: float) -> None:
        """verdict_seconds: wall-clock limit of one verdict, from the moment at which a judge begins it."""
        self._pool, self._lock, self._seconds = pool, lock, verdict_seconds
        self._verdicts: dict[str, PlacedVerdict] = {}
        self._closed = threading.Event()

    def start_clock(self) -> None:
        """Starts the thread that ends late verdicts."""
        threading.Thread(target=self._watch, name="verdict clock", daemon=True).start()

    def close(self) -> None:
        """Stops the clock."""
        self._closed.set()

    def add(
        self, verdict_id: str, device: DeviceKind, submit: Callable[[], Future[Report]]
    ) -> Future[Report]:
        """Counts a verdict before `submit` hands it to the pool, which may begin it at once. Returns its future."""
        self._verdicts[verdict_id] = running = PlacedVerdict(device, Future())
        try:
            running.future = submit()
        except BaseException:
            self.remove(verdict_id)
            raise
        return running.future

    def begin(self, verdict_id: str, judge: str) -> None:
        """Starts the clock of a verdict that a judge begins."""
        if (running := self._verdicts.get(verdict_id)) is not None:
            running.began_at, running.judge = time.monotonic(), judge

    def by_judge(self) -> dict[str, list[tuple[str, str, float]]]:
        """Returns, for each judge that is at work, its verdicts: id, step, and seconds since it began."""
        now = time.monotonic()
        verdicts: dict[str, list[tuple[str, str, float]]] = {}
        for verdict_id, running in self._verdicts.items():
            if running.began_at is not None:
                verdicts.setdefault(running.judge, []).append(
                    (verdict_id, running.doing, now - running.began_at)
                )
        return verdicts

    def set_step(self, verdict_id: str, doing: str) -> None:
        """Notes the step that a verdict is at."""
        if (running := self._verdicts.get(verdict_id)) is not None:
            running.doing = doing

    def step(self, verdict_id: str) -> str:
        """Returns the step that a verdict is at; empty where it is not running."""
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
        """Forgets a verdict that has ended."""
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
