"""A step of a verdict that may run in a thread beside the steps after it."""

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
    """A function that runs in a thread once it is started. A context manager that stops it on exit.

    In the thread the function gets a progress callback that reports nothing; once the step is stopped, the next call of
    it raises StepStopped. The exit does not wait for that: what the thread holds is given back when it notices.
    """

    def __init__(self, step: Callable[[Progress], T]) -> None:
        """step: called with the progress callback."""
        self._step = step
        self._stopped = threading.Event()
        self._future: Future[T] | None = None

    def start(self) -> None:
        """Starts the thread."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._future = pool.submit(self._step, self._raise_if_stopped)
        pool.shutdown(wait=False)

    def result(self, progress: Progress) -> T:
        """Returns the result of the function, which is waited for, or called here if it was never started. Raises what
        the function raises.
        """
        return self._step(progress) if self._future is None else self._future.result()

    def _raise_if_stopped(self, _: str) -> None:
        if self._stopped.is_set():
            raise StepStopped

    def __enter__(self) -> BackgroundStep[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
