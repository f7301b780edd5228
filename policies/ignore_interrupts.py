"""Processes of ours that Ctrl-C is not for: whoever started them ends them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """What is started within does not hear Ctrl-C from its first moment (a signal mask is inherited, also by a new
    program): it would print a traceback while it imports.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its own start would give this thread its ears back
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
