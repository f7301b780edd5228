"""The table of an optimized model for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.optimizing.result import OptimizationResult, RegionResult
from kernelwright.agent.optimizing.timing import Times
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    facts_table,
    format_milliseconds,
    number_of,
    quoted_text,
)


def optimized_view(result: OptimizationResult) -> RenderableType:
    """Renders a line for each region, then the check and the times of the whole model."""
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    table.add_column("region", no_wrap=True)
    for column in ("modules", "launches", "eager", "torch.compile", "kernel", "share"):
        table.add_column(column, justify="right")
    table.add_column("", overflow="fold")
    for row in result.regions:
        table.add_row(*_cells(row))
    return Group(table, facts_table(_facts(result)))


def _cells(row: RegionResult) -> list[Text]:
    after = "" if row.launches_after is None else f" to {row.launches_after}"
    verdict = Text("kept", style=GOOD) if row.kept else quoted_text(row.reason, limit=200)
    return [
        Text(row.name),
        Text(str(len(row.modules))),
        Text(f"{row.launches_before}{after}"),
        *_times(row.times),
        Text(f"{row.share:.0%}"),
        verdict,
    ]


def _times(times: Times) -> list[Text]:
    return [_milliseconds(time) for time in (times.eager, times.compiled, times.best)]


def _milliseconds(time: float | None) -> Text:
    return Text("-", style=QUIET) if time is None else Text(format_milliseconds(time))


def _facts(result: OptimizationResult) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    check = result.check
    if check.done:
        style, word = (GOOD, "right") if check.correct else (BAD, "wrong")
        text = f"{word}, largest difference {check.largest_difference:.3g}"
        facts.append(("whole model", Text(text, style=style)))
    else:
        facts.append(("whole model", Text(f"not checked: {check.note}")))
    if check.gradients is not None:
        facts.append(("gradients", "right" if check.gradients else "wrong"))
    times = result.times
    if times.eager is not None:
        shown = [f"eager {format_milliseconds(times.eager)}"]
        if times.compiled is not None:
            shown.append(f"torch.compile {format_milliseconds(times.compiled)}")
        if times.best is not None:
            shown.append(f"kernels {format_milliseconds(times.best)}")
        facts.append(("time", ", ".join(shown)))
    for note in result.notes:
        facts.append(("note", note))
    if result.package is not None:
        kernels = number_of(result.kept, "kernel")
        facts.append(("package", f"{result.package} ({kernels}; pip install ./{result.package})"))
    facts.append(("took", f"{result.seconds:.0f} s"))
    return facts
