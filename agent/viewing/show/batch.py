"""A batch while it runs, and how it ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.viewing.report.texts import figure_rows
from kernelwright.agent.viewing.show.words import BAD, GOOD, LABEL, QUIET, WARN, facts_table, format_ratio, quoted_text

if TYPE_CHECKING:
    from kernelwright.agent.batch.running import BatchResult
    from kernelwright.agent.batch.runs import Batch, BatchStatus
    from kernelwright.agent.viewing.report.run_report import RunReport

MAX_RUNS_SHOWN = 12
"""Runs at work that are shown."""
LOG_INTERVAL_SECONDS = 30.0
"""Seconds between two lines of a log."""
PAUSING_POLL_SECONDS = 0.2
"""Seconds between two looks at whether a batch pauses, which is shown at once."""
PAUSING_MESSAGE = "pausing after what the judges and servers are at; Ctrl-C again leaves at once"
"""Shown from the first Ctrl-C on, until the runs are paused."""


class LiveBatch:
    """Renders a batch, a few times a second."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._doing = "starting"

    def watch(self, batch: Batch) -> None:
        """Shows a batch from the next redraw on."""
        self._batch = batch

    def say(self, doing: str) -> None:
        """Shows one line instead of a batch: what is done before or after it."""
        self._doing, self._batch = doing, None

    def line(self) -> str:
        """The one line, without colours, for where there is no terminal."""
        if self._batch is None:
            return self._doing
        return PAUSING_MESSAGE if self._batch.pausing else standing_line(self._batch.standing).plain

    def __rich__(self) -> RenderableType:
        if self._batch is None:
            return Text(self._doing, style=QUIET)
        last = Text(PAUSING_MESSAGE, style=WARN) if self._batch.pausing else standing_line(self._batch.standing)
        return Group(_runs(self._batch), lanes_view(self._batch.standing), last)


def _runs(batch: Batch) -> Table:
    table = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in ("problem", "sample", "turn", "state", "best", "doing"):
        table.add_column(name, no_wrap=True)
    doing = batch.doing
    for run in doing[:MAX_RUNS_SHOWN]:
        table.add_row(
            quoted_text(run.problem, limit=40), str(run.sample), str(run.turn), run.state, format_ratio(run.best),
            quoted_text(run.doing, QUIET, 60)
        )  # fmt: skip
    if len(doing) > MAX_RUNS_SHOWN:
        table.add_row(Text(f"and {len(doing) - MAX_RUNS_SHOWN} more", style=QUIET))
    return table


def lanes_view(standing: BatchStatus) -> Table:
    """Renders the load of each lane, now and on average."""
    table = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in ("lane", "places", "inside", "waiting", "entered", "busy"):
        table.add_column(name, justify="left" if name == "lane" else "right")
    for lane in standing.lanes:
        numbers = (lane.places, lane.inside, lane.waiting, lane.entered)
        table.add_row(lane.name, *map(str, numbers), f"{lane.utilisation:.1%} ({lane.busy_seconds:.1f} s)")
    return table


def standing_line(standing: BatchStatus) -> Text:
    """Writes how far a batch is as one line."""
    parts = [
        f"{standing.done} of {standing.jobs} done",
        f"{standing.correct} correct here",
    ]
    if standing.faster is not None:
        parts.append(f"{standing.faster} faster than eager")
    if standing.not_judged:
        parts.append(f"{standing.not_judged} not judged")
    if standing.paused:
        parts.append(f"{standing.paused} paused")
    if standing.busy_elsewhere:
        parts.append(f"{standing.busy_elsewhere} at work in another process")
    return Text(f"{', '.join(parts)}, {standing.seconds:.0f} s", style=QUIET)


@contextmanager
def live_batch(quiet: bool = False) -> Iterator[tuple[Callable[[Batch], None], Callable[[str], None]]]:
    """Shows a batch at work. Where stderr is no terminal it writes a line now and then: a log shows how far a batch of
    hours is.
    """
    console = Console(stderr=True)
    shown = LiveBatch()
    if quiet:
        yield shown.watch, shown.say
        return
    if not console.is_terminal:
        with _lines(shown):
            yield shown.watch, shown.say
        return
    from rich.live import Live

    with Live(shown, console=console, refresh_per_second=4, transient=True):
        yield shown.watch, shown.say


@contextmanager
def _lines(shown: LiveBatch) -> Iterator[None]:
    over = threading.Event()

    def tell() -> None:
        told, told_at = "", time.monotonic()
        while not over.wait(min(PAUSING_POLL_SECONDS, LOG_INTERVAL_SECONDS)):
            line, now = shown.line(), time.monotonic()
            if line != told and (line == PAUSING_MESSAGE or now - told_at >= LOG_INTERVAL_SECONDS):
                print(line, file=sys.stderr, flush=True)
                told, told_at = line, now

    teller = threading.Thread(target=tell, name="batch-lines", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def batched_view(batched: BatchResult) -> RenderableType:
    """The figures, the lanes, where the report is."""
    complete = batched.standing.done == batched.standing.jobs
    head = ("done", GOOD) if complete else ("paused; the same command goes on from here", BAD)
    parts: list[RenderableType] = [
        Text.assemble(("run ", LABEL), quoted_text(batched.run), "  ", head),
        run_view(batched.report),
    ]
    parts += [lanes_view(batched.standing), standing_line(batched.standing)]
    parts += [Text.assemble(("paused, ", LABEL), quoted_text(why, WARN)) for why in batched.standing.paused_because]
    parts.append(facts_table([("files", "\n".join(batched.files))]))
    if batched.note:
        parts.append(Text(f"note: {batched.note}", style=WARN))
    return Group(*parts)


def run_view(report: RunReport) -> RenderableType:
    """Shows the figures of a batch."""
    parts: list[RenderableType] = []
    for group in report.groups:
        parts += [quoted_text(group.label, LABEL), facts_table(figure_rows(group.figures)), Text()]
    return Group(*parts)
