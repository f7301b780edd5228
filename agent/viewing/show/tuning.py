"""Renders the result of a tuning."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.words import AdaptiveTable
from kernelwright.agent.tuning.files import format_configuration
from kernelwright.agent.tuning.tuned import (
    OUTCOMES_TO_MEASURE,
    ConfigurationOutcome,
    JudgedConfiguration,
    ParameterGroup,
    TriedConfiguration,
    TuningResult,
)
from kernelwright.tools.report import Report, Speedup
from kernelwright.tools.tuning.kernel_text.parameters import Setting

MAX_SHOWN_ROWS = 24
"""Maximum number of configurations in a table."""
MAX_FAILURES_SHOWN = 3
"""Maximum number of messages of configurations that do not compile."""


def tuned_view(tuned: TuningResult) -> RenderableType:
    """Renders the whole result of a tuning."""
    if tuned.failure:
        return Text(f"{tuned.kernel} cannot be tuned for {tuned.problem}: {tuned.failure}")
    parts: list[RenderableType] = [_headline(tuned), _parameters(tuned)]
    for group in tuned.groups:
        parts += ["", group_table(group, tuned), Text(_counted(group), style="dim")]
        parts += [Text(line, style="dim") for line in _failures(group, tuned)]
    parts += ["", *(Text(line) for line in _ending(tuned))]
    return Lines(*parts)


def _headline(tuned: TuningResult) -> Text:
    basis = (
        f"measured on {tuned.device}"
        if tuned.measured
        else f"compiled for {tuned.target}; nothing was measured"
    )
    return Text(f"{tuned.kernel} for {tuned.problem}: {basis}")


def _parameters(tuned: TuningResult) -> Table:
    table = Table("parameter", "line", "now", "tried among", box=box.SIMPLE, pad_edge=False)
    for parameter in tuned.parameters:
        table.add_row(
            parameter.name,
            str(parameter.line),
            str(parameter.start),
            " ".join(map(str, parameter.values)),
        )
    for refused in tuned.refused:
        table.add_row(
            refused.name, str(refused.line), "", Text(f"left alone: {refused.why}", style="dim")
        )
    return table


def group_table(group: ParameterGroup, tuned: TuningResult) -> AdaptiveTable:
    """Renders a line for each configuration that was measured or could be; without a GPU the
    model's estimate.
    """
    numbers = ("registers", "spills", "shared", "occupancy")
    times = ("ms", "95 % interval") if tuned.measured else ("model",)
    rows = [row for row in group.rows if row.fate in OUTCOMES_TO_MEASURE or row.start]
    cells = []
    for row in rows[:MAX_SHOWN_ROWS]:
        style = "bold" if row.fate is ConfigurationOutcome.WON else ""
        cells.append([Text(cell, style=style) for cell in _cells(row, group, tuned)])
    headings = ("configuration", *times, *numbers, "held by")
    return AdaptiveTable(headings, cells, numeric=(*times, *numbers), wrapped=("configuration",))


def _counted(group: ParameterGroup) -> str:
    plurals = {ConfigurationOutcome.REMAINS: "remain"}
    counted = []
    for fate in ConfigurationOutcome:
        count = sum(row.fate is fate for row in group.rows)
        if count:
            counted.append(f"{count} {plurals.get(fate, fate) if count > 1 else fate}")
    return f"{len(group.rows)} compiled: {', '.join(counted)}"


def _cells(row: TriedConfiguration, group: ParameterGroup, tuned: TuningResult) -> list[str]:
    name = _changed(row, group, {parameter.name: parameter.start for parameter in tuned.parameters})
    if row.right_on_cpu is not None:
        name += "  (right on a CPU)" if row.right_on_cpu else "  (wrong on a CPU)"
    cells = [name]
    if tuned.measured:
        time = row.timing
        cells += (
            [f"{time.median:.4g}", f"{time.low:.4g} to {time.high:.4g}"]
            if time is not None
            else ["", ""]
        )
    else:
        cells.append("" if row.relative is None else f"{row.relative:.2f}")
    longest = max(row.score.kernels, key=lambda kernel: kernel.cycles, default=None)
    if longest is None:
        return [*cells, "", "", "", "", ""]
    occupancy = "" if longest.occupancy is None else f"{longest.occupancy:.0%}"
    held = f"{longest.bound}" if longest.bound else ""
    return [
        *cells,
        _number(longest.registers),
        _number(longest.spills),
        _number(longest.shared),
        occupancy,
        held,
    ]


def _changed(row: TriedConfiguration, group: ParameterGroup, start: Mapping[str, Setting]) -> str:
    """Returns the settings that differ from the file."""
    changed = {n: v for n, v in row.configuration.items() if v != start.get(n)}
    return format_configuration(changed, group.parameters) if changed else "as in the file"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _failures(group: ParameterGroup, tuned: TuningResult) -> list[str]:
    start = {parameter.name: parameter.start for parameter in tuned.parameters}
    failures = [
        f"  fails: {_changed(row, group, start)}: {row.score.failure or row.note}"
        for row in group.rows
        if row.fate in (ConfigurationOutcome.FAILED, ConfigurationOutcome.WRONG)
    ]
    omitted = (
        [f"  and {len(failures) - MAX_FAILURES_SHOWN} more fail"]
        if len(failures) > MAX_FAILURES_SHOWN
        else []
    )
    return [*failures[:MAX_FAILURES_SHOWN], *omitted]


def _ending(tuned: TuningResult) -> list[str]:
    if not tuned.measured:
        return [
            "The column `model` ranks by what the compiler says, over the file's own; it is no time.",
            "Which of these is fastest needs a GPU: run the same command there. No tuned file was written.",
            f"What was compiled is kept in {tuned.journal}.",
        ]
    lines = [*_speeds(tuned), *(f"Note: {note}." for note in tuned.notes)]
    lines.append(
        f"It took {tuned.launches:,} timed calls and {tuned.gpu_seconds:.1f} s of the GPU."
    )
    if tuned.output:
        lines.append(f"Written to {tuned.output}.")
    else:
        lines.append(
            "No configuration is certainly faster than the file's own: nothing was written."
        )
    return lines + ([f"The picture is {tuned.picture}."] if tuned.picture else [])


def _speeds(tuned: TuningResult) -> list[str]:
    lines = []
    if tuned.chosen and tuned.chosen[0].timing is not None and tuned.before is not None:
        after = tuned.chosen[0].timing
        times = f"{tuned.before.median:.4g} ms before, {after.median:.4g} ms after"
        eager = f", eager PyTorch {tuned.eager.median:.4g} ms" if tuned.eager is not None else ""
        alike = tuned.before.method is not None and tuned.before.method is after.method
        gain = f" ({Speedup.between(tuned.before, after).median:.2f}x)" if alike else ""
        lines.append(f"{times}{gain}{eager}.")
    for kind, judged in tuned.by_precision.items():
        if judged.timing is not None:
            lines.append(
                f"Fastest with --precision {kind}: {judged.timing.median:.4g} ms ({_multiplies(judged)})."
            )
    return lines + _errors(tuned.report)


def _multiplies(judged: JudgedConfiguration) -> str:
    """Returns the configuration's precision class, and its error if it was judged."""
    if judged.error is None or judged.eager_error is None:
        return f"{judged.precision}"
    return f"{judged.precision}, error {judged.error:.3g} against float64, eager's {judged.eager_error:.3g}"


def _errors(report: Report | None) -> list[str]:
    """Writes the error against float64 beside eager's, with the precision of either."""
    if report is None:
        return []
    lines = []
    checks = report.correctness.checks if report.correctness else ()
    measured_checks = [c for c in checks if c.max_error is not None and c.eager_error is not None]
    if measured_checks:
        worst = max(measured_checks, key=lambda c: c.max_error or 0.0)
        lines.append(
            f"Largest error against float64: {worst.max_error:.3g}, eager's on the same inputs {worst.eager_error:.3g}."
        )
    if report.profile is not None and report.profile.precision:
        lines.append(
            f"It multiplies in {report.profile.precision}; eager was timed in {report.profile.eager_precision}."
        )
    if not report.correct:
        lines.append(f"The full verdict: {report.explanation}.")
    return lines
