"""Messages of an interrupted command, to be continued by a later call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops

STOPPED = "stopped: the same command goes on from here"


@contextmanager
def goes_on_later() -> Iterator[None]:
    """Acknowledges the first Ctrl-C (or SIGTERM) at once, and prints at the end how to continue.
    For commands with stored progress.
    """
    try:
        with announce_stops(PAUSING):
            yield
    except KeyboardInterrupt:
        typer.echo(STOPPED, err=True)
        raise
