"""Renders a batch while it runs, and its result."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.texts import figure_rows
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    format_ratio,
    quoted_text,
)
from kernelwright.agent.viewing.show.rendering import show
from kernelwright.agent.viewing.show.server_notes import ServerNotes

if TYPE_CHECKING:
    from kernelwright.agent.batch.running import BatchResult
    from kernelwright.agent.batch.runs import Batch, BatchStatus
    from kernelwright.agent.reporting.run_report import RunReport

MAX_RUNS_SHOWN = 12
"""Maximum number of displayed runs under way."""
PAUSING_MESSAGE = "pausing after what the judges and servers are at; Ctrl-C again leaves at once"
"""Displayed from the first Ctrl-C on, until the runs are paused."""


class LiveBatch:
    """A batch under way: a table of runs in a terminal, counts in a log."""

    seconds_between_lines = 10.0

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._doing = "starting"
        self._messages: deque[str] = deque()
        self.notes = ServerNotes(logging.WARNING)

    def watch(self, batch: Batch) -> None:
        """Shows a batch from the next redraw on."""
        self._batch = batch

    def say(self, doing: str) -> None:
        """Shows a line instead of a batch: the current step before or after the batch."""
        self._doing, self._batch = doing, None

    def tell(self, line: str) -> None:
        """Shows a line as `say` does; in a log it is printed however soon it follows the line
        before.
        """
        self.say(line)
        self._messages.append(line)

    def line(self) -> str:
        """Describes the finished runs, and the activity of the oldest run under way."""
        if self._batch is None:
            return self._doing
        if self._batch.pausing:
            return f"pausing, {len(self._batch.doing)} under way"
        doing = [
            f"{run.problem}, turn {run.turn}, {run.state}: {run.doing}"
            for run in self._batch.doing[:1]
        ]
        return "; ".join([", ".join(standing_parts(self._batch.standing)), *doing])

    def take_events(self) -> list[str]:
        """Returns the troubles of the policy's server, and the lines of `tell`. Ended runs show
        in the counts.
        """
        lines = self.notes.take()
        while self._messages:
            lines.append(self._messages.popleft())
        return lines

    def __rich__(self) -> RenderableType:
        if self._batch is None:
            return Text(self._doing, style=QUIET)
        last = (
            Text(PAUSING_MESSAGE, style=WARN)
            if self._batch.pausing
            else standing_line(self._batch.standing)
        )
        notes = [quoted_text(note, QUIET, 200) for note in list(self.notes.latest)]
        return Group(_runs(self._batch), lanes_view(self._batch.standing), *notes, last)


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
        table.add_row(
            lane.name, *map(str, numbers), f"{lane.utilisation:.1%} ({lane.busy_seconds:.1f} s)"
        )
    return table


def standing_line(standing: BatchStatus, seconds: float | None = None) -> Text:
    """Writes the progress of a batch as one line, with the batch's seconds or those of the
    command.
    """
    passed = standing.seconds if seconds is None else seconds
    return Text(", ".join([*standing_parts(standing), f"{passed:.0f} s"]), style=QUIET)


def standing_parts(standing: BatchStatus) -> list[str]:
    """Counts the runs of a batch: `3 of 10 done`, `2 correct here`."""
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
    return parts


@contextmanager
def live_batch(quiet: bool = False) -> Iterator[LiveBatch]:
    """Shows a batch at work on stderr: a table in a terminal, lines elsewhere."""
    shown = LiveBatch()
    with shown.notes.listening(), show(shown, quiet):
        yield shown


def batched_view(batched: BatchResult) -> RenderableType:
    """Renders the figures, the lanes, and the paths of the report."""
    complete = batched.standing.done == batched.standing.jobs
    head = ("done", GOOD) if complete else ("paused; the same command goes on from here", BAD)
    if complete and batched.nothing_judged:
        head = ("done, and no problem could be judged", BAD)
    parts: list[RenderableType] = [
        Text.assemble(("run ", LABEL), quoted_text(batched.run), "  ", head),
        run_view(batched.report),
    ]
    parts += [lanes_view(batched.standing), standing_line(batched.standing, batched.seconds)]
    parts += [
        Text.assemble(("paused, ", LABEL), quoted_text(why, WARN))
        for why in batched.standing.paused_because
    ]
    parts.append(facts_table([("files", "\n".join(batched.files))]))
    if batched.note:
        parts.append(Text(f"note: {batched.note}", style=WARN))
    return Group(*parts)


def run_view(report: RunReport) -> RenderableType:
    """Renders the figures of a batch."""
    parts: list[RenderableType] = []
    for group in report.groups:
        parts += [quoted_text(group.label, LABEL), facts_table(figure_rows(group.figures)), Text()]
    return Group(*parts)
