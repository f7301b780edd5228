"""Messages of an interrupted command that a later call continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops

STOPPED = "stopped: the same command goes on from here"


@contextmanager
def goes_on_later() -> Iterator[None]:
    """Acknowledges the first Ctrl-C (or SIGTERM) at once, and prints at the end that the same
    command continues. For commands that store their progress.
    """
    try:
        with announce_stops(PAUSING):
            yield
    except KeyboardInterrupt:
        typer.echo(STOPPED, err=True)
        raise
