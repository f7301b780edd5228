"""What the database holds, and what was found in it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.show.words import BAD, GOOD, LABEL, QUIET, data, facts, size, times
from store.records import Found, Stats


def stats_view(stats: Stats) -> Table:
    states = ", ".join(f"{count} {state.value}" for state, count in stats.candidates.items())
    return facts(
        [
            ("database", f"{stats.where}, schema {stats.version}, {size(stats.bytes)}"),
            ("runs", stats.runs),
            ("trajectories", f"{stats.trajectories}, {stats.unfinished} unfinished"),
            ("candidates", states or "none"),
            ("verdicts", f"{stats.verdicts}, {stats.correct} candidates are correct, {stats.rewards} rewards"),
            ("texts", f"{stats.blobs}, {size(stats.blob_bytes)} kept in {size(stats.stored_bytes)}"),
        ]
    )


def found_view(found: Sequence[Found]) -> RenderableType:
    if not found:
        return Text("nothing was found", style=QUIET)
    table = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in ("trajectory", "turn", "problem", "verdict", "speedup", "where"):
        table.add_column(name, no_wrap=name != "where")
    for (candidate, trajectory, verdict), excerpt in found:
        said = "not judged" if verdict is None else "correct" if verdict.correct else (verdict.fault or "incorrect")
        style = GOOD if verdict is not None and verdict.correct else BAD
        speed = times(verdict.speedup if verdict else None)
        cells = (str(trajectory.id), str(candidate.turn + 1), data(trajectory.problem, limit=40))
        table.add_row(*cells, Text(str(said).replace("_", " "), style=style), speed, data(excerpt, QUIET, 160))
    return table
