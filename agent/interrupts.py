"""Ctrl-C at a moment that can bear it."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

STOPPING_AFTER_STEP = "stopping after this step; Ctrl-C again stops at once, at the last checkpoint"
"""The message of a training at the first Ctrl-C: a step may take a minute."""
STOPPING_SOON = "stopping as soon as what has just begun is whole"
"""The message at the first Ctrl-C where it is held back: the import of torch takes seconds."""


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: torch aborts the whole process when it comes in the middle of its
    import. In other threads it never comes.
    """
    with _handle_interrupts(lambda first: None, STOPPING_SOON):
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

    with _handle_interrupts(at, says):
        yield


@contextmanager
def _handle_interrupts(at: Callable[[bool], None], says: str) -> Iterator[None]:
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
        with _say_at_once(says) if says else nullcontext():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


@contextmanager
def _say_at_once(says: str) -> Iterator[None]:
    """A thread prints `says` on stderr at the first Ctrl-C.

    Python calls a handler only between two instructions of the main thread, and a backward pass on a CPU is one
    instruction of many seconds; the signal's number is written to the wake-up descriptor at once.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)

    def listen() -> None:
        while number := heard.recv(1):
            if number[0] == signal.SIGINT:
                print(says, file=sys.stderr, flush=True)
                return

    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, name="says that Ctrl-C was heard", daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        listener.join()
        heard.close()
