"""Progress lines of a command: all of them in a log, the latest in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kernelwright.agent.viewing.show.rendering import show

if TYPE_CHECKING:
    from rich.console import Group

LINES_SHOWN = 12
"""Number of the latest lines shown in a terminal."""


class LineActivity:
    """The progress lines of a command. The last line is repeated with its duration during a long
    silence.
    """

    seconds_between_lines = 15.0

    def __init__(self) -> None:
        self._shown: deque[str] = deque(maxlen=LINES_SHOWN)
        self._events: SimpleQueue[str] = SimpleQueue()
        self._since = time.monotonic()

    def say(self, text: str) -> None:
        """Appends a line to the view and to its events."""
        self._shown.append(text)
        self._events.put(text)
        self._since = time.monotonic()

    def line(self) -> str:
        """The latest progress line."""
        return self._shown[-1] if self._shown else ""

    def take_events(self) -> list[str]:
        """Returns the lines since the last call."""
        return [self._events.get() for _ in range(self._events.qsize())]

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        seconds = Text(f"{time.monotonic() - self._since:.0f} s", style="dim")
        return Group(*map(Text, self._shown), seconds)


@contextmanager
def said_lines(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function for printing a line to stderr; without effect if `quiet`."""
    activity = LineActivity()
    with show(activity, quiet):
        yield activity.say
