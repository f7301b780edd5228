"""The console for results on stdout, and the progress of commands with one step after another:
`progress`, `live`.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from kernelwright.agent.reporting.words import BAD, GOOD, LABEL, QUIET, format_ratio, quoted_text
from kernelwright.agent.viewing.show.rendering import show
from kernelwright.agent.viewing.show.server_notes import ServerNotes

if TYPE_CHECKING:
    from kernelwright.agent.loop.attempts import JudgedAttempt
    from kernelwright.agent.loop.run import Run
    from kernelwright.agent.loop.stopping import Spent


MIN_PIPE_WIDTH_COLUMNS = 140
"""Width if stdout is a file or a pipe: a table cut at 80 columns is of no use there."""


def console() -> Console:
    """Returns the console for results, as wide as the terminal if there is one."""
    terminal = Console()
    if terminal.is_terminal:
        return terminal
    return Console(
        file=cast(TextIO, TrimmedOutput()), width=max(terminal.width, MIN_PIPE_WIDTH_COLUMNS)
    )


class TrimmedOutput:
    """stdout for files and pipes: removes the padding of tables at the ends of lines."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Writes whole lines, as rich prints them."""
        sys.stdout.write(re.sub(r"[ \t]+(?=\n|$)", "", text))
        return len(text)

    def flush(self) -> None:
        """Flushes the stream of stdout."""
        sys.stdout.flush()

    def isatty(self) -> bool:
        """Returns False: the class is used if stdout is no terminal."""
        return False


class CurrentStep:
    """The current step of a command and the seconds since its beginning."""

    seconds_between_lines = 3.0

    def __init__(self) -> None:
        self.doing = ""
        self._spinner = Spinner("dots")
        self._since = time.monotonic()

    def say(self, doing: str) -> None:
        """Starts another step; an unchanged step continues."""
        if doing != self.doing:
            self.doing, self._since = doing, time.monotonic()

    def line(self) -> str:
        """Returns the current step, for a log."""
        return self.doing

    def take_events(self) -> list[str]:
        """Returns nothing: steps leave no results."""
        return []

    def spinner(self, prefix: Text | None = None) -> Spinner:
        """Returns a spinner with the step and its seconds."""
        seconds = time.monotonic() - self._since
        doing = quoted_text(self.doing or "starting", limit=200)
        self._spinner.update(
            text=Text.assemble(prefix or Text(), doing, (f", {seconds:.0f} s", QUIET))
        )
        return self._spinner

    def __rich__(self) -> RenderableType:
        return self.spinner()


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current step; with `quiet` it shows nothing."""
    step = CurrentStep()
    with show(step, quiet):
        yield step.say


MAX_TURNS_SHOWN = 6
"""Maximum number of turns displayed in a terminal, the latest."""


class LiveRun(CurrentStep):
    """A run under way: its turns with their verdicts, and its current action."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Run | None = None
        self.notes = ServerNotes(logging.INFO)
        self._turns_told = 0

    def watch(self, run: Run, doing: str) -> None:
        """Shows the run and its current action."""
        if self.run is None:
            self._turns_told = len(run.attempts)  # turns of an earlier call are no news
        self.run = run
        self.say(doing)

    def line(self) -> str:
        """Formats the current action: `turn 2, repair: waiting for the model`."""
        return f"{self._state()}{self.doing}" if self.doing else ""

    def take_events(self) -> list[str]:
        """Returns the notes on the policy's server, and the verdict of each ended turn."""
        notes = self.notes.take()
        if self.run is None:
            return notes
        attempts = self.run.attempts[self._turns_told :]
        self._turns_told += len(attempts)
        verdicts = [_turn_line(attempt) for attempt in attempts]
        if verdicts and self.run.spent.tokens:
            verdicts[-1] += f"; {describe_spent(self.run.spent)} so far"
        return notes + verdicts

    def __rich__(self) -> RenderableType:
        spinner = self.spinner(Text(self._state(), style=LABEL))
        if self.run is None:
            return spinner
        return Group(
            *[_turn(attempt) for attempt in self.run.attempts[-MAX_TURNS_SHOWN:]],
            *[quoted_text(note, QUIET, 200) for note in list(self.notes.latest)],
            spinner,
            _standing(self.run),
        )

    def _state(self) -> str:
        return "" if self.run is None else f"turn {len(self.run.attempts) + 1}, {self.run.state}: "


def describe_spent(spent: Spent) -> str:
    """Formats `12,345 tokens, $0.0123`; without dollars if no price is known, or nothing is
    charged.
    """
    dollars = f", ${spent.dollars:.4f}" if spent.dollars else ""
    return f"{spent.tokens:,} tokens{dollars}"


def _turn_line(attempt: JudgedAttempt) -> str:
    """Formats a turn for a log: `turn 2, repair by compiler: it compiled; ...`."""
    report = attempt.report
    assert report is not None
    verdict = "correct" if report.correct else report.explanation
    speed = f", {format_ratio(report.speedup)} of eager" if report.speedup is not None else ""
    return (
        f"turn {attempt.turn + 1}, {attempt.action}, written by {attempt.author}: {verdict}{speed}"
    )


def _turn(attempt: JudgedAttempt) -> Text:
    """Renders a turn: `turn 2  repair  candidate 7  interpreted  mismatch`."""
    report = attempt.report
    assert report is not None
    verdict = (
        ("correct", GOOD)
        if report.correct
        else (report.failure.fault.replace("_", " ") if report.failure else "?", BAD)
    )
    again = f"  the same as turn {attempt.repeats + 1}" if attempt.repeats is not None else ""
    speed = f"  {format_ratio(report.speedup)}" if report.speedup is not None else ""
    name = f"turn {attempt.turn + 1}  {attempt.action:<6}  candidate {attempt.candidate_id}  {report.rung:<11}  "
    return Text.assemble((name, QUIET), verdict, speed, (again, QUIET))


def _standing(run: Run) -> Text:
    from kernelwright.agent.loop.stopping import describe_budget_left

    best = run.best
    best_words = "none correct yet"
    if best is not None:
        best_words = f"turn {best.turn + 1}"
        if best.speedup:
            best_words += f" at {format_ratio(best.speedup)}"
    spent = run.spent
    cost = f"{describe_spent(spent)}   " if spent.tokens else ""
    return Text(
        f"best: {best_words}   {cost}{describe_budget_left(run.settings.budgets, spent)}",
        style=QUIET,
    )


@contextmanager
def live(quiet: bool = False) -> Iterator[tuple[Callable[[Run, str], None], Callable[[str], None]]]:
    """Yields two callbacks: for the changes of a run, and for a step before the run begins."""
    shown = LiveRun()
    with shown.notes.listening(), show(shown, quiet):
        yield shown.watch, shown.say
