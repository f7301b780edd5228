"""Ctrl-C at a moment that can bear it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING_AFTER_STEP = "stopping after this step; Ctrl-C again stops at once, at the last checkpoint"
"""What a training says at the first Ctrl-C: a step may take a minute."""


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: torch aborts the whole process when it comes in the middle of its
    import. In other threads it never comes.
    """
    with _handle_interrupts(lambda first: None):
        yield


@contextmanager
def stop_on_interrupt(ask: Callable[[], None], says: str = "") -> Iterator[None]:
    """The first Ctrl-C calls `ask` and `says` so on stderr, and KeyboardInterrupt comes when the block has ended; a
    second one stops at once. Main thread only; elsewhere nothing is changed.
    """

    def at(first: bool) -> None:
        if not first:
            raise KeyboardInterrupt
        ask()
        if says:
            os.write(2, f"{says}\n".encode())  # print may be in the middle of a line of its own

    with _handle_interrupts(at):
        yield


@contextmanager
def _handle_interrupts(at: Callable[[bool], None]) -> Iterator[None]:
    """`at` is called at each Ctrl-C, and told whether it is the first; KeyboardInterrupt comes after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def catch(number: int, frame: Any) -> None:
        caught.append(number)
        at(len(caught) == 1)

    before = signal.signal(signal.SIGINT, catch)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt
