"""Threads that share a list of jobs; Ctrl-C may reach the main thread at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from kernelwright.agent.runtime.interrupts import is_stop_handled_above, stop_on_interrupt

Job = TypeVar("Job")

WATCH_SECONDS = 0.1
"""Seconds between two calls of the progress callback."""


class WorkerThreads(Generic[Job]):
    """Does jobs in threads until there is none left.

    Running jobs are counted here and not by their threads: CPython before 3.13 takes a thread for
    ended when Ctrl-C interrupts a `join` (gh-90882), and a running thread would be left behind.
    """

    def __init__(
        self, take: Callable[[], Job | None], do: Callable[[Job], None], ask: Callable[[], None]
    ) -> None:
        """take: returns the next job, None if there is no further job; called by one thread at a
        time. do: raises nothing.

        ask: asks the running jobs to end early; may be called at any point of the main thread.
        """
        self._take, self._do, self._ask = take, do, ask
        self._lock = threading.Lock()
        self._under_way = 0
        self._no_more = self._stopping = False
        self._changed: SimpleQueue[None] = SimpleQueue()

    def run(self, threads: int, watch: Callable[[], None] = lambda: None, says: str = "") -> bool:
        """Runs until no job is left or under way, and returns whether Ctrl-C came. `watch` is
        called ten times a second.

        The first Ctrl-C asks the jobs to end, prints `says` on stderr, and waits for running
        jobs; a second Ctrl-C raises KeyboardInterrupt at once. If a caller handles Ctrl-C
        already, its handler stays.
        """
        try:
            with nullcontext() if is_stop_handled_above() else stop_on_interrupt(self.stop, says):
                self._run(threads, watch)
        except KeyboardInterrupt:
            if not self._is_over():
                raise
        return self._stopping

    def _run(self, threads: int, watch: Callable[[], None]) -> None:
        try:
            for _ in range(threads):
                threading.Thread(target=self._work, daemon=True).start()
            if threads:
                self._wait(watch)
        except KeyboardInterrupt:  # the second Ctrl-C, or the first if a caller handles it
            if self._stopping:
                raise
            self.stop()
            self._wait(watch)

    def stop(self) -> None:
        """Starts no further job, and asks the running jobs to end."""
        self._stopping = True
        self._ask()
        self._changed.put(None)

    def _wait(self, watch: Callable[[], None]) -> None:
        while not self._is_over():
            with suppress(Empty):
                self._changed.get(timeout=WATCH_SECONDS)
            watch()

    def _is_over(self) -> bool:
        with self._lock:
            return (self._no_more or self._stopping) and self._under_way == 0

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._do(job)
            finally:
                with self._lock:
                    self._under_way -= 1
                self._changed.put(None)
        self._changed.put(None)

    def _next(self) -> Job | None:
        """Takes and counts a job in a single step, so the main thread never sees it between the
        two.
        """
        with self._lock:
            job = None if self._stopping else self._take()
            if job is None:
                self._no_more = True
            else:
                self._under_way += 1
            return job
