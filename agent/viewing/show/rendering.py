"""Shows the progress of a command on stderr: a live view in a terminal, lines in a file, a pipe
or a scheduler's log.

Both render an `Activity`; stdout is left to results.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kernelwright.tools.report import clean_text

if TYPE_CHECKING:
    from rich.console import RenderableType

FIRST_LINE_SECONDS = 3.0
"""Seconds of silence at the beginning: a shorter command needs no progress."""
HEARTBEAT_SECONDS = 15.0
"""Seconds after which a line is repeated with the step's time so far."""
RENDER_SECONDS = 0.2
"""Seconds between two looks at the activity."""
MAX_LINE_CHARACTERS = 300
"""Maximum number of characters of a printed line."""


class Activity(Protocol):
    """Interface of displays: the current step of a command, and the events since the last call."""

    seconds_between_lines: float
    """Least seconds between two lines of a log; events are never delayed. Steps within the
    interval may be skipped: a verdict has dozens of steps in a second.
    """

    def line(self) -> str:
        """Returns the current step without its seconds; empty to show nothing."""
        ...

    def take_events(self) -> list[str]:
        """Returns the events since the last call, such as the verdict of a turn; each is returned
        once.
        """
        ...

    def __rich__(self) -> RenderableType:
        """Renders the view in a terminal; called several times a second."""
        ...


@contextmanager
def show(activity: Activity, quiet: bool = False) -> Iterator[None]:
    """Shows the activity while the block runs; with `quiet` nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield
    elif console.is_terminal and not console.is_dumb_terminal:
        from rich.live import Live

        with Live(activity, console=console, refresh_per_second=8, transient=True):
            yield
    else:
        with _lines(LineLog(activity)):
            yield


@contextmanager
def _lines(log: LineLog) -> Iterator[None]:
    over = threading.Event()

    def poll() -> None:
        while not over.wait(RENDER_SECONDS):
            log.print_due(time.monotonic())

    thread = threading.Thread(target=poll, name="progress lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        log.print_events(time.monotonic())  # events after the last poll


class LineLog:
    """Prints an activity as lines that begin with the seconds since the start: `[35 s] the
    compiler drafts, 20 s`.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._started = time.monotonic()
        self._step, self._step_began = "", self._started
        self._printed, self._printed_at = "", float("-inf")

    def print_due(self, now: float) -> None:
        """Prints the events, and the current step if it is new or was not printed for long."""
        step = self._activity.line()
        if step != self._step:
            self._step, self._step_began = step, now
        if now - self._started < FIRST_LINE_SECONDS:
            return
        self.print_events(now)
        # A new step waits for the interval; an unchanged step is repeated as a heartbeat.
        silent = now - self._printed_at
        interval = self._activity.seconds_between_lines
        is_new = step != self._printed and silent >= interval
        if step and (is_new or silent >= HEARTBEAT_SECONDS):
            seconds = now - self._step_began
            self._print(f"{step}, {seconds:.0f} s" if seconds >= interval else step, now)
            self._printed = step

    def print_events(self, now: float) -> None:
        """Prints the events since the last call; nothing within the first seconds."""
        if now - self._started < FIRST_LINE_SECONDS:
            return
        for event in self._activity.take_events():
            self._print(event, now)

    def _print(self, text: str, now: float) -> None:
        line = " ".join(clean_text(text, MAX_LINE_CHARACTERS).split())
        try:
            print(f"[{now - self._started:.0f} s] {line}", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # a closed stderr is no reason to end a run
            return
        finally:
            self._printed_at = now
