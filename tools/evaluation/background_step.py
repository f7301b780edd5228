"""A step of a verdict that runs in a thread beside the steps after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
Progress = Callable[[str], None]


class StepStopped(Exception):
    """Ends a step whose result nobody waits for any more."""


class BackgroundStep(Generic[T]):
    """Runs a function in a thread at once. A context manager that stops it on exit.

    The function gets a progress callback that reports nothing; once the step is stopped, the next call of it raises
    StepStopped. The exit does not wait for that: what the thread holds is given back when it notices.
    """

    def __init__(self, step: Callable[[Progress], T]) -> None:
        """step: called with the progress callback."""
        self._stopped = threading.Event()
        pool = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._future: Future[T] = pool.submit(step, self._say)
        pool.shutdown(wait=False)

    def result(self) -> T:
        """Waits for the result of the function. Raises what the function raised."""
        return self._future.result()

    def _say(self, _: str) -> None:
        if self._stopped.is_set():
            raise StepStopped

    def __enter__(self) -> BackgroundStep[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
