"""Renders the verdicts at each shape that a problem names: a row for each, and the speed over all."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.agent.reporting.verdicts.failure import fault_name
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    QUIET,
    WARN,
    AdaptiveTable,
    format_milliseconds,
    format_ratio,
    quoted_text,
)
from kernelwright.tools.report import Report, ReportOutcome, ShapeVerdict

SHAPE_COLUMNS = ("shape", "inputs", "verdict", "launches", "time", "speedup")


def shapes_view(report: Report) -> RenderableType:
    """Renders a row for each shape, then the worst and the mean speedup."""
    rows = [_row(verdict) for verdict in report.shapes]
    table = AdaptiveTable(SHAPE_COLUMNS, rows, numeric=("launches",), wrapped=("inputs",))
    return Group(table, Text(shapes_line(report), style=QUIET))


def shapes_line(report: Report) -> str:
    """Formats `3 of 3 shapes correct; worst 1.31x eager PyTorch (prefill), geometric mean 1.62x`."""
    right = sum(verdict.report.correct for verdict in report.shapes)
    line = f"{right} of {len(report.shapes)} shapes correct"
    timed = [verdict for verdict in report.shapes if verdict.report.speedup is not None]
    if report.mean_speedup is None or not timed:
        missing = len(report.shapes) - len(timed)
        return f"{line}; {missing} not timed" + (" (no GPU)" if _on_cpu(report) else "")
    worst = min(timed, key=lambda verdict: verdict.report.speedup or 0.0)
    return (
        f"{line}; worst {format_ratio(worst.report.speedup)} eager PyTorch ({worst.name}), "
        f"geometric mean {format_ratio(report.mean_speedup)}"
    )


def _on_cpu(report: Report) -> bool:
    return report.judged_on in ("", "cpu")


def _row(verdict: ShapeVerdict) -> tuple[Text, ...]:
    report = verdict.report
    profile = report.profile if report.correct else None
    if profile is not None and profile.candidate is not None:
        time, speedup = format_milliseconds(profile.candidate.median), format_ratio(report.speedup)
    else:
        time, speedup = "not timed (no GPU)" if _on_cpu(report) else "not timed", "-"
    return (
        quoted_text(verdict.name, limit=60),
        quoted_text(", ".join(verdict.inputs)),
        _verdict(report),
        Text("-" if verdict.launches is None else str(verdict.launches)),
        Text(time),
        Text(speedup),
    )


def _verdict(report: Report) -> Text:
    if report.correct:
        return Text("correct", GOOD)
    if report.failure is not None and report.outcome is ReportOutcome.INCORRECT:
        return Text(fault_name(report.failure), BAD)
    return Text("needs a GPU" if report.needs_gpu else "not checked", WARN)
