"""Threads that share a list of jobs, and whose main thread Ctrl-C may reach at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from kernelwright.agent.runtime.interrupts import is_stop_handled_above, stop_on_interrupt

Job = TypeVar("Job")

WATCH_SECONDS = 0.1


class WorkerThreads(Generic[Job]):
    """Does jobs in threads until there is none left.

    A job under way is counted here and not by its thread: CPython before 3.13 takes a thread for ended when Ctrl-C
    interrupts a `join` (gh-90882), and one that goes on would be left behind.
    """

    def __init__(
        self, take: Callable[[], Job | None], do: Callable[[Job], None], ask: Callable[[], None]
    ) -> None:
        """take: the next job, None where there is none any more; called by one thread at a time. do: raises nothing.

        ask: asks the jobs under way to end early. It may be called in the middle of whatever the main thread does.
        """
        self._take, self._do, self._ask = take, do, ask
        self._lock = threading.Lock()
        self._under_way = 0
        self._no_more = self._asked = False
        self._changed: SimpleQueue[None] = SimpleQueue()

    def run(self, threads: int, watch: Callable[[], None] = lambda: None, says: str = "") -> bool:
        """Returns when no job is left or under way, and whether Ctrl-C came. `watch` is called ten times a second.

        The first Ctrl-C asks, `says` so on stderr, and lets what is under way end; a second one raises
        KeyboardInterrupt at once. Where somebody above waits for Ctrl-C, it is theirs.
        """
        try:
            with nullcontext() if is_stop_handled_above() else stop_on_interrupt(self.stop, says):
                self._run(threads, watch)
        except KeyboardInterrupt:
            if not self._is_over():
                raise
        return self._asked

    def _run(self, threads: int, watch: Callable[[], None]) -> None:
        try:
            for _ in range(threads):
                threading.Thread(target=self._work, daemon=True).start()
            if threads:
                self._wait(watch)
        except KeyboardInterrupt:  # the second one, or the first where it is somebody else's
            if self._asked:
                raise
            self.stop()
            self._wait(watch)

    def stop(self) -> None:
        """No job is begun any more."""
        self._asked = True
        self._ask()
        self._changed.put(None)

    def _wait(self, watch: Callable[[], None]) -> None:
        while not self._is_over():
            with suppress(Empty):
                self._changed.get(timeout=WATCH_SECONDS)
            watch()

    def _is_over(self) -> bool:
        with self._lock:
            return (self._no_more or self._asked) and self._under_way == 0

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
        """Taken and counted in one step, so that none is between the two when the main thread looks."""
        with self._lock:
            job = None if self._asked else self._take()
            if job is None:
                self._no_more = True
            else:
                self._under_way += 1
            return job
