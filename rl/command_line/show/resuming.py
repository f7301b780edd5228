"""What a command says when it is stopped, where the same command goes on later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops

STOPPED = "stopped: the same command goes on from here"


@contextmanager
def goes_on_later() -> Iterator[None]:
    """Acknowledges the first Ctrl-C (or SIGTERM) at once, and says at the end that the same command goes on. For
    commands that keep what they have done.
    """
    try:
        with announce_stops(PAUSING):
            yield
    except KeyboardInterrupt:
        typer.echo(STOPPED, err=True)
        raise
