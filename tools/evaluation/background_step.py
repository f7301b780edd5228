"""Runs a step of a verdict in a thread beside later steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
Progress = Callable[[str], None]


class StepStopped(Exception):
    """Raised in a step whose result is no longer needed."""


class BackgroundStep(Generic[T]):
    """Runs a function in a thread once started. A context manager that stops it on exit.

    In the thread, the function gets a progress callback without output; once the step is stopped,
    the callback raises StepStopped. The exit does not wait for this: the thread releases its
    resources then.
    """

    def __init__(self, step: Callable[[Progress], T]) -> None:
        """step: called with the progress callback."""
        self._step = step
        self._stopped = threading.Event()
        self._future: Future[T] | None = None

    def start(self) -> None:
        """Starts the function in a thread."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._future = pool.submit(self._step, self._raise_if_stopped)
        pool.shutdown(wait=False)

    def result(self, progress: Progress) -> T:
        """Returns the function's result: waits for the thread, or calls the function here if not
        started. Raises its errors."""
        return self._step(progress) if self._future is None else self._future.result()

    def _raise_if_stopped(self, _: str) -> None:
        if self._stopped.is_set():
            raise StepStopped

    def __enter__(self) -> BackgroundStep[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
