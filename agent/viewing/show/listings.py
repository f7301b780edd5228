"""Tables for the terminal: problems and their manifests, the database and search results,
comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    AdaptiveTable,
    facts_table,
    format_bytes,
    format_milliseconds,
    format_ratio,
    number_of,
    quoted_text,
)
from kernelwright.tools.manifests.suite import summary
from kernelwright.tools.timing.roofline import roofline

if TYPE_CHECKING:
    from kernelwright.agent.comparison.tables import ComparisonTable
    from kernelwright.store.records import SearchHit, Stats
    from kernelwright.tools.hardware.peaks import Peak
    from kernelwright.tools.manifests.manifest import Manifest
    from kernelwright.tools.problem import Problem


def problems_view(problems: Iterable[Problem]) -> Table:
    """Renders a line for each problem: its name, its family, its title, and the sizes of the CPU
    rungs.
    """
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    table.add_column("problem", no_wrap=True)
    table.add_column("family", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("on a CPU", overflow="fold")
    for problem in problems:
        sizes = " ".join(f"{name}={value}" for name, value in problem.cpu_sizes.items())
        table.add_row(
            Text(problem.name),
            Text(problem.family, style=QUIET),
            quoted_text(problem.title),
            Text(sizes, style=QUIET),
        )
    return table


def manifests_view(manifests: Sequence[Manifest], peak: Peak) -> RenderableType:
    """Renders a line for each problem, then the suite's figures. The speed of light is that of
    `peak`.
    """
    numbers = ("bytes", "operations", f"at {peak.gpu}", "eager error")
    lists = ("passes our judge", "passes KernelBench", "makes no difference")
    rows = [_row(manifest, peak) for manifest in manifests]
    table = AdaptiveTable(("problem", *numbers, *lists), rows, numeric=numbers, wrapped=lists)
    return Group(table, Text(), *(quoted_text(line) for line in summary(list(manifests))))


def _row(manifest: Manifest, peak: Peak) -> list[Text]:
    if manifest.failure:
        return [
            Text(manifest.problem),
            *[Text("-")] * 4,
            quoted_text(f"not measured: {manifest.failure}", WARN),
        ]
    work = manifest.work
    light = roofline(work, peak.bytes_per_second, peak.rates) if work else None
    error = manifest.eager_rms
    return [
        Text(manifest.problem),
        Text(format_bytes(work.bytes if work else None)),
        Text("-" if work is None or work.operations is None else f"{work.operations:.3g}"),
        Text(
            f"{format_milliseconds(light.milliseconds)} ({light.bound})"
            if light and light.bound
            else "-"
        ),
        Text("-" if error is None else f"{error:.1e}"),
        Text(", ".join(manifest.degenerate), style=BAD),
        Text(", ".join(manifest.degenerate_kb), style=WARN),
        Text(", ".join(manifest.dead), style=QUIET),
    ]


def stats_view(stats: Stats) -> Table:
    """Renders the contents of a database in numbers."""
    states = ", ".join(f"{count} {state.value}" for state, count in stats.candidates.items())
    right = number_of(stats.correct, "correct candidate")
    return facts_table(
        [
            ("database", f"{stats.where}, schema {stats.version}, {format_bytes(stats.bytes)}"),
            ("runs", stats.runs),
            ("trajectories", f"{stats.trajectories}, {stats.unfinished} unfinished"),
            ("candidates", states or "none"),
            ("verdicts", f"{stats.verdicts}, {right}, {number_of(stats.rewards, 'reward')}"),
            (
                "texts",
                f"{stats.blobs}, {format_bytes(stats.blob_bytes)} kept in {format_bytes(stats.stored_bytes)}",
            ),
        ]
    )


def found_view(hits: Sequence[SearchHit]) -> RenderableType:
    """Renders the turns that a search returned."""
    if not hits:
        return Text("nothing was found", style=QUIET)
    rows = []
    for (candidate, trajectory, verdict), excerpt in hits:
        outcome = "not judged"
        if verdict is not None:
            outcome = "correct" if verdict.correct else (verdict.fault or "incorrect")
        style = GOOD if verdict is not None and verdict.correct else BAD
        speed = format_ratio(verdict.speedup if verdict else None)
        facts = (
            Text(str(trajectory.id)),
            Text(str(candidate.turn + 1)),
            quoted_text(trajectory.problem, limit=40),
        )
        words = Text(str(outcome).replace("_", " "), style=style)
        rows.append((*facts, words, Text(speed), quoted_text(excerpt, QUIET, 160)))
    headings = ("trajectory", "turn", "problem", "verdict", "speedup", "where")
    return AdaptiveTable(headings, rows, numeric=("speedup",), wrapped=("where",))


def tables_view(tables: Sequence[ComparisonTable]) -> RenderableType:
    """Renders the tables of a comparison."""
    parts: list[RenderableType] = []
    for table in tables:
        parts += [
            Text(table.title, style="bold"),
            _comparison_grid(table) if table.rows else Text("none", style=QUIET),
            Text(),
        ]
    return Group(*parts[:-1])


def _comparison_grid(table: ComparisonTable) -> Table:
    grid = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in table.head:
        grid.add_column(quoted_text(name, limit=60), overflow="fold")
    for row in table.rows:
        grid.add_row(*(_cell(cell, column) for column, cell in enumerate(row)))
    return grid


def _cell(cell: str, column: int) -> Text:
    right = column and ": correct" in cell
    return quoted_text(cell, GOOD if right else LABEL if not column else "", 400)
