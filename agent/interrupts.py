"""Ctrl-C at a moment that can bear it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: torch aborts the whole process when it comes in the middle of its import. In other threads it never comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


@contextmanager
def stopping(ask: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls `ask`, and KeyboardInterrupt comes when the block has ended; a second one stops at once. Main thread only; elsewhere nothing is changed."""
    caught: list[int] = []

    def catch(number: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        ask()

    try:
        before = signal.signal(signal.SIGINT, catch)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt
