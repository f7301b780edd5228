"""Writes a run's report as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence

from kernelwright.agent.reporting.figures import Estimate, Figures
from kernelwright.agent.reporting.pairing import RunComparison
from kernelwright.agent.reporting.run_report import (
    Against,
    PolicyGroup,
    ProblemSummary,
    RunReport,
)
from kernelwright.agent.reporting.samples import Cost
from kernelwright.agent.reporting.words import number_of
from kernelwright.tools.report import clean_text

REPORT_COLUMNS = (
    "policy", "problem", "samples", "compiled", "correct", "best_speedup", "milliseconds", "speed_of_light",
    "judged_on", "outcome", "fault", "message",
    "degenerate", "best_trajectory", "turns", "tokens", "dollars", "gpu_seconds",
)  # fmt: skip

MAX_NAMED_PROBLEMS = 8
"""Maximum number of unusable problems named in the figures; the table of problems has all."""


def format_estimate(estimate: Estimate, share: bool = True) -> str:
    """Formats an estimate with its interval, `62.5 % (51.0 to 73.1)`; a dash if there is none."""
    if estimate.value is None:
        return "-"
    scale, unit = (100.0, " %") if share else (1.0, "x")
    interval = (
        ""
        if estimate.low is None or estimate.high is None
        else f" ({estimate.low * scale:.3g} to {estimate.high * scale:.3g})"
    )
    return f"{estimate.value * scale:.3g}{unit}{interval}"


def figure_rows(figures: Figures) -> list[tuple[str, str]]:
    """Writes the figures in words, the most frequently read first."""
    head = [
        (
            "problems",
            f"{figures.problems}, {figures.attempted} attempted, {number_of(figures.samples, 'sample')}",
        )
    ]
    if figures.unfinished:
        head.append(("not finished", number_of(figures.unfinished, "sample")))
    head += _unusable_rows(figures)
    if figures.nothing_judged:
        return [*head, ("cost", cost_text(figures.cost))]
    return [*head, *_share_rows(figures), ("cost", cost_text(figures.cost))]


def _share_rows(figures: Figures) -> list[tuple[str, str]]:
    """Returns the rows on the problems that can be judged."""
    rows = [
        ("compiled", format_estimate(figures.compiled)),
        ("correct", format_estimate(figures.correct)),
        (
            "correct, degenerate problems left out",
            f"{format_estimate(figures.correct_without_degenerate)}, {figures.degenerate} left out",
        ),
    ]
    if figures.solved_by_compiler:
        rows.insert(
            2,
            (
                "correct by the compiler's draft",
                f"{figures.solved_by_compiler} of {number_of(figures.samples, 'sample')}",
            ),
        )
    if figures.correct_on_cpu_only and not figures.not_timed:
        rows.append(
            (
                "correct on a CPU only",
                f"{figures.correct_on_cpu_only} problems, which enter no speed figure",
            )
        )
    rows += [(f"fast_{p:g}", _both(figures.fast[p], figures.fast_best[p])) for p in figures.fast]
    rows += [(f"pass@{k}", format_estimate(value)) for k, value in figures.pass_at.items()]
    return [
        *rows,
        *([("speed", figures.not_timed)] if figures.not_timed else _speedup_rows(figures)),
    ]


def _unusable_rows(figures: Figures) -> list[tuple[str, str]]:
    """Returns rows with the number of unusable problems and the whole reason of each."""
    if not figures.unusable:
        return []
    count = f"{len(figures.unusable)} of {number_of(figures.problems, 'problem')}"
    named = figures.unusable[:MAX_NAMED_PROBLEMS]
    rows = [("not judged", f"{count}, in no share, because of the reference and not of a kernel")]
    rows += [("", f"{name}: {figures.unusable_because.get(name, '')}") for name in named]
    omitted = len(figures.unusable) - len(named)
    return [
        *rows,
        *(
            [("", f"and {omitted} more, with their reasons in the table of problems")]
            if omitted
            else []
        ),
    ]


def _speedup_rows(figures: Figures) -> list[tuple[str, str]]:
    timed = (
        f" over {figures.median_speedup.problems} problems"
        if figures.median_speedup.problems
        else ""
    )
    return [
        (
            "median speedup over the correct",
            format_estimate(figures.median_speedup, share=False) + timed,
        ),
        ("geometric mean of the same", format_estimate(figures.mean_speedup, share=False)),
        *_same_work_rows(figures),
    ]


def _same_work_rows(figures: Figures) -> list[tuple[str, str]]:
    """Returns the rows on samples of the same work, if they differ from the figures of all
    samples.
    """
    left_out = [f"{figures.degenerate} degenerate problems"] * bool(figures.degenerate)
    left_out += [f"{figures.by_algebra} by exact algebra"] * bool(figures.by_algebra)
    if not left_out or figures.mean_speedup.value is None:
        return []
    speedup = format_estimate(figures.mean_speedup_of_same_work, share=False)
    return [("geometric mean of the same work", f"{speedup}, {' and '.join(left_out)} left out")]


def _both(mean: Estimate, best: Estimate) -> str:
    if mean.value == best.value:
        return format_estimate(mean)
    return f"{format_estimate(mean)}; best of the samples {format_estimate(best)}"


def cost_text(cost: Cost) -> str:
    """Writes a cost as one line; its seconds are sums over runs, which overlap in time."""
    dollars = "dollars unknown" if cost.dollars is None else f"${cost.dollars:.4f}"
    times = (
        f"summed over runs {cost.policy_seconds:.0f} s of policy, {cost.tool_seconds:.0f} s of tools, "
        f"{cost.gpu_seconds:.0f} s of GPU"
    )
    return f"{cost.turns} turns, {cost.tokens:,} tokens, {dollars}, {times}"


def against_rows(against: Against) -> list[tuple[str, ...]]:
    """Writes a comparison with another batch as rows of cells, one for each test."""
    return [paired_cells(test) for test in against.tests]


def paired_cells(test: RunComparison) -> tuple[str, ...]:
    """Writes the cells of a paired test in the order of AGAINST_HEAD."""
    return (
        test.measure, str(test.problems), f"{test.wins} / {test.losses} / {test.ties}",
        "-" if test.difference is None else f"{test.difference:+.3g}", _p(test.sign_p), _p(test.permutation_p),
    )  # fmt: skip


AGAINST_HEAD = (
    "measure",
    "problems",
    "wins / losses / ties",
    "mean difference",
    "sign test p",
    "permutation p",
)
ROW_HEAD = (
    "problem",
    "samples",
    "compiled",
    "correct",
    "best speedup",
    "of speed of light",
    "judged on",
    "fault",
    "best trajectory",
    "note",
)


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def problem_cells(row: ProblemSummary) -> tuple[str, ...]:
    """Writes the cells of a problem's row."""
    speed = "-" if row.best_speedup is None else f"{row.best_speedup:.3g}x"
    share = "-" if row.speed_of_light is None else f"{row.speed_of_light:.0%}"
    notes = [
        f"degenerate: {', '.join(row.degenerate)}"
        if row.degenerate
        else row.message[:160].replace("|", "/")
    ]
    if row.eval_mode:
        notes.insert(0, f"judged in eval mode: {row.eval_mode}")
    note = "; ".join(filter(None, notes))
    return (
        row.problem, str(row.samples), str(row.compiled), str(row.correct), speed, share, row.judged_on or "-",
        row.fault.replace("_", " ") or "-",
        "-" if row.best_trajectory is None else str(row.best_trajectory), note,
    )  # fmt: skip


def write_markdown(report: RunReport) -> str:
    """Writes the report of a batch as Markdown."""
    created = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report.created))
    lines = [
        f"# Run {escape_markdown_cell(report.run)}",
        "",
        f"From `{escape_markdown_cell(report.database)}`, {created}. {describe_method(report)}",
        "",
    ]
    for group in report.groups:
        lines += [
            f"## {escape_markdown_cell(group.label)}",
            "",
            *markdown_table(("figure", "value"), figure_rows(group.figures)),
            "",
        ]
    for against in report.against:
        lines += [
            f"## {escape_markdown_cell(against.first)} against {escape_markdown_cell(against.second)}",
            "",
        ]
        lines += [*markdown_table(AGAINST_HEAD, against_rows(against)), ""]
    for group in report.groups:
        lines += [
            f"## Problems: {escape_markdown_cell(group.label)}",
            "",
            *markdown_table(ROW_HEAD, map(problem_cells, group.rows)),
            "",
        ]
    return "\n".join(lines)


def describe_method(report: RunReport) -> str:
    """Describes the computation of the figures; mentions speeds only if a group has some."""
    method = "Intervals are 95 %, bootstrapped over problems. Problems that were never attempted count as failed."
    if any(group.figures.unusable for group in report.groups):
        method += " Problems that cannot be judged do not count."
    if all(group.figures.not_timed for group in report.groups):
        return method
    return f"{method} What was judged on a CPU only enters neither fast_p nor a speedup."


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Writes a table as lines of Markdown."""
    lines = [_line(head), _line(["---"] * len(head))]
    return lines + [_line([escape_markdown_cell(cell) for cell in row]) for row in rows]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown_cell(text: str) -> str:
    """Escapes a name of a user's or a file's: one line, no early end of the cell, no markup."""
    return (
        " ".join(clean_text(text, 300).split())
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
    )


def csv_text(report: RunReport) -> str:
    """Writes a CSV line for each policy and problem."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(REPORT_COLUMNS)
    for group in report.groups:
        writer.writerows(_csv_cells(group, row) for row in group.rows)
    return out.getvalue()


def _csv_cells(group: PolicyGroup, row: ProblemSummary) -> list[object]:
    values = {**row.model_dump(exclude={"cost"}), **row.cost.model_dump(), "policy": group.label}
    values["degenerate"] = " ".join(row.degenerate)
    return [_cell(values[name]) for name in REPORT_COLUMNS]


def _cell(value: object) -> object:
    """Escapes a cell, so a spreadsheet does not take a name for a formula."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
