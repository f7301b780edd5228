"""Consoles for results and for progress: results go to stdout; a run's progress is shown on stderr and then removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from kernelwright.agent.viewing.show.words import BAD, GOOD, LABEL, QUIET, format_ratio, quoted_text

if TYPE_CHECKING:
    from rich.console import Console

    from kernelwright.agent.loop.attempts import Attempt
    from kernelwright.agent.loop.run import Run


MIN_PIPE_WIDTH_COLUMNS = 140
"""Columns where stdout is a file or a pipe: a table that is cut at 80 is of no use there."""


def console() -> Console:
    """Returns the console for results, as wide as the terminal where there is one."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=max(found.width, MIN_PIPE_WIDTH_COLUMNS))


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Gives a function that says the current step. It says nothing where `quiet`, or where stderr is not a terminal."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step: None
        return
    with console.status("starting") as status:
        yield lambda step: status.update(escape(step))


MAX_TURNS_SHOWN = 6
"""Turns shown, the latest ones."""


class LiveRun:
    """Renders a run, several times a second."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.doing = "starting"
        self._spinner = Spinner("dots")
        self._since = time.monotonic()

    def watch(self, run: Run, doing: str) -> None:
        """Shows the run and its current action."""
        self.run = run
        self.say(doing)

    def say(self, doing: str) -> None:
        """Shows the current action with the seconds since its beginning."""
        self.doing, self._since = doing, time.monotonic()

    def __rich__(self) -> RenderableType:
        seconds = time.monotonic() - self._since
        self._spinner.update(
            text=Text.assemble(self._state(), quoted_text(self.doing, limit=200), (f", {seconds:.0f} s", QUIET))
        )
        if self.run is None:
            return self._spinner
        return Group(
            *[_turn(attempt) for attempt in self.run.attempts[-MAX_TURNS_SHOWN:]], self._spinner, _standing(self.run)
        )

    def _state(self) -> Text:
        if self.run is None:
            return Text()
        return Text.assemble((f"turn {len(self.run.attempts) + 1} ", LABEL), (f"{self.run.state} ", "bold"))


def _turn(attempt: Attempt) -> Text:
    """`turn 2  repair  candidate 7  interpreted  mismatch`."""
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
    found = (
        "none correct yet"
        if best is None
        else f"turn {best.turn + 1}" + (f" at {format_ratio(best.speedup)}" if best.speedup else "")
    )
    return Text(f"best: {found}   {describe_budget_left(run.settings.budgets, run.spent)}", style=QUIET)


@contextmanager
def live(quiet: bool = False) -> Iterator[tuple[Callable[[Run, str], None], Callable[[str], None]]]:
    """Gives what a run tells its changes to, and what says a step before there is a run.

    Silent where stderr is no terminal.
    """
    console = Console(stderr=True)
    shown = LiveRun()
    if quiet or not console.is_terminal:
        yield shown.watch, shown.say
        return
    from rich.live import Live

    with Live(shown, console=console, refresh_per_second=8, transient=True):
        yield shown.watch, shown.say
