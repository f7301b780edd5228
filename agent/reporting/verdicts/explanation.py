"""Renders the evidence behind a verdict (`agent check --explain`): the draws, the searched draws,
the exercised comparisons of the kernels, the choices of the host code with an outcome that was never
seen, and the seconds of each stage.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    quoted_text,
)
from kernelwright.tools.comparison_coverage import (
    ComparisonCoverage,
    Coverage,
    OutcomeCoverage,
)
from kernelwright.tools.host_choices import HostChoice
from kernelwright.tools.report import CorrectnessResult, Report

STYLE_OF_OUTCOMES = {OutcomeCoverage.BOTH: GOOD, OutcomeCoverage.UNCOVERED: BAD}


def explanation_view(report: Report) -> RenderableType:
    """Renders the evidence of a report; stages beyond the end are omitted."""
    checked = report.correctness or report.interpreted
    parts: list[RenderableType] = [Text("how this verdict came about", style=LABEL)]
    if checked is not None:
        parts.append(facts_table([("draws", _draws(checked)), ("sizes", _sizes(checked))]))
    if (coverage := report.coverage) is not None:
        parts.append(
            facts_table(
                [("searched", _searched(coverage)), ("comparisons", _comparisons(coverage))]
            )
        )
        if coverage.constant_results:
            parts.append(facts_table([("never varied", _constant_results(coverage))]))
    if checked is not None and checked.host_choices:
        parts.append(facts_table([("host code", _host_choices(checked.host_choices))]))
    parts.append(facts_table([("seconds", _seconds(report))]))
    return Group(*parts)


def _draws(checked: CorrectnessResult) -> str:
    """Counts the compared outputs by kind of draw: `own 2, signed 1, sizes 8`."""
    counts = Counter(check.draw.partition(" at ")[0].partition(":")[0] for check in checked.checks)
    return ", ".join(f"{draw} {count}" for draw, count in counts.items())


def _sizes(checked: CorrectnessResult) -> str:
    """Counts the sizes by reason: `prime 2, longer than a block 1`."""
    counts = Counter(size.why or "the problem's own" for size in checked.tried)
    return ", ".join(f"{why} {count}" for why, count in counts.items())


def _searched(coverage: Coverage) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(overflow="fold")
    for draw in coverage.searched:
        result = (
            f"{draw.produced} further outcomes"
            if draw.used
            else "not used: the reference is not accurate on it"
        )
        table.add_row(quoted_text(draw.change, limit=100), Text(result, style=QUIET))
    return table


def _comparisons(coverage: Coverage) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(overflow="fold")
    for comparison in coverage.comparisons:
        style = STYLE_OF_OUTCOMES.get(comparison.outcomes, WARN)
        table.add_row(
            Text(f"line {comparison.line}", style=LABEL),
            quoted_text(f"{comparison.operator}  in  {comparison.text}", limit=100),
            Text(_outcomes(comparison), style=style),
            Text(f"{comparison.evaluations} blocks", style=QUIET),
        )
    if (missing := coverage.comparison_count - len(coverage.comparisons)) > 0:
        table.add_row("", f"and {missing} more with both outcomes", "", "")
    return table


def _constant_results(coverage: Coverage) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for result in coverage.constant_results:
        value = "one value" if result.value is None else f"always {result.value:.6g}"
        code = quoted_text(f"{result.operation}  in  {result.text}", limit=100)
        table.add_row(Text(f"line {result.line}", style=LABEL), code, Text(value, style=BAD))
    return table


def _host_choices(choices: tuple[HostChoice, ...]) -> Table:
    """Lists the choices of the host code of which one outcome was never seen."""
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for choice in choices:
        line = f"line {choice.line}" if choice.line else ""
        code = quoted_text(choice.text, limit=100)
        table.add_row(Text(line, style=LABEL), code, Text(f"never {choice.never}", style=BAD))
    return table


def _outcomes(comparison: ComparisonCoverage) -> str:
    if comparison.outcomes is OutcomeCoverage.BOTH:
        return "true and false"
    covered = (
        "true" if comparison.true else "false" if comparison.false else "neither true nor false"
    )
    text = f"{covered} only, {comparison.outcomes.value.replace('_', ' ')}"
    if comparison.nearest is None:
        return text
    data, other = comparison.nearest
    return f"{text}; nearest: {data:.6g} beside {other:.6g}"


def _seconds(report: Report) -> str:
    checked = report.correctness or report.interpreted
    parts = [
        ("compile", sum(c.seconds for c in report.compiles)),
        ("checks", checked.seconds if checked else 0.0),
    ]
    if report.coverage is not None:
        parts.append(("searching (of the checks)", report.coverage.search_seconds))
    return ", ".join(
        f"{name} {seconds:.2f}" for name, seconds in (*parts, ("in all", report.seconds))
    )
