"""Writes a report to files: Markdown, CSV, JSON and a self-contained HTML page with inline SVG
plots.

The page escapes all text of other authors, and its content policy forbids loading anything.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.agent.reporting import texts
from kernelwright.agent.reporting.figures import Figures
from kernelwright.agent.reporting.run_report import RunReport
from kernelwright.agent.reporting.texts import csv_text, write_markdown
from kernelwright.agent.reporting.trajectory_report import TrajectoryReport, speeds
from kernelwright.tools.report import Roofline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_ROOFLINE_POINTS = 8
"""Maximum number of turns, the fastest, in the roofline plot."""


def run_page(report: RunReport) -> str:
    """Writes the report of a batch as an HTML page that loads nothing."""
    groups = [(group.label, group.figures) for group in report.groups]
    return _render(
        "run.html.j2",
        title=f"Run {report.run}",
        report=report,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report.created)),
        plots=[plot for plot in (fast_p_plot(groups), pass_at_k_plot(groups)) if plot],
        method=texts.describe_method(report),
        figure_rows=texts.figure_rows,
        against_head=texts.AGAINST_HEAD,
        against_rows=texts.against_rows,
        row_head=texts.ROW_HEAD,
    )


def trajectory_page(report: TrajectoryReport) -> str:
    """Writes the report of a trajectory as an HTML page that loads nothing."""
    failed = [turn.number for turn in report.turns if not turn.correct]
    plots = [speed_plot(speeds(report.turns), failed)]
    if report.roofline is not None:
        plots.append(roofline_plot(report.roofline, _points(report)))
    return _render(
        "trajectory.html.j2",
        title=f"{report.problem}, trajectory {report.trajectory_id}",
        report=report,
        plots=[plot for plot in plots if plot],
        unmeasured=_unmeasured(report),
    )


def _unmeasured(report: TrajectoryReport) -> str:
    """Returns the reason for a page without a plot of speeds; empty if there is a plot."""
    if speeds(report.turns):
        return ""
    if any(turn.correct for turn in report.turns):
        return (
            "No speed and no roofline: what is correct was judged on a CPU, where nothing is timed."
        )
    return "No speed and no roofline: no turn is correct."


def _points(report: TrajectoryReport) -> list[tuple[str, float]]:
    timed = [
        (turn.number, turn.milliseconds) for turn in report.turns if turn.milliseconds is not None
    ]
    fastest = sorted(timed, key=lambda turn: turn[1])[:MAX_ROOFLINE_POINTS]
    points = [(f"turn {number}", milliseconds) for number, milliseconds in fastest]
    return [*points, *([("eager", report.eager_milliseconds)] if report.eager_milliseconds else [])]


def _render(template: str, **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["problem_cells"] = texts.problem_cells
    return environment.get_template(template).render(**values)


PLOT_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kernelwright",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def fast_p_plot(groups: Sequence[tuple[str, Figures]]) -> str:
    """Draws the share of problems over p, with its interval. Empty if nothing was timed."""
    groups = [(name, figures) for name, figures in groups if figures.fast]
    if not groups:
        return ""
    with _styled():
        figure, axes = _axes(
            "p: speedup over eager PyTorch, strictly more than", "fast_p (% of problems)"
        )
        for name, figures in groups:
            xs: list[float] = []
            ys: list[float] = []
            lows: list[float] = []
            highs: list[float] = []
            for p, estimate in figures.fast.items():
                if estimate.value is not None:
                    xs.append(p)
                    ys.append(100 * estimate.value)
                    # A single problem has no interval: the band has no width there.
                    lows.append(100 * (estimate.value if estimate.low is None else estimate.low))
                    highs.append(100 * (estimate.value if estimate.high is None else estimate.high))
            axes.fill_between(xs, lows, highs, alpha=0.15, linewidth=0)
            axes.plot(xs, ys, marker="o", markersize=4, label=_literal(name))
        axes.set_ylim(-3, 103)
        return _svg(figure, axes, "fast_p")


def pass_at_k_plot(groups: Sequence[tuple[str, Figures]]) -> str:
    """Draws pass@k; empty with one sample per problem, since a point is no curve."""
    if all(len(figures.pass_at) < 2 for _, figures in groups):
        return ""
    with _styled():
        figure, axes = _axes("k", "pass@k (% of problems)")
        for name, figures in groups:
            values = [100 * (estimate.value or 0.0) for estimate in figures.pass_at.values()]
            axes.plot(list(figures.pass_at), values, marker="o", markersize=4, label=_literal(name))
        axes.set_xscale("log", base=2)
        axes.set_ylim(-3, 103)
        axes.xaxis.set_major_formatter("{x:.0f}")
        return _svg(figure, axes, "pass@k")


def speed_plot(
    turns: Sequence[tuple[int, float]],
    failed: Sequence[int] = (),
    label: str = "speedup over eager PyTorch",
) -> str:
    """Draws the speed of each correct turn, and the best so far; `failed` are turns without a
    speed. Empty if no turn was timed.
    """
    if not turns:
        return ""
    with _styled():
        figure, axes = _axes("turn", label)
        xs, ys = [turn for turn, _ in turns], [speed for _, speed in turns]
        best = [max(ys[: index + 1]) for index in range(len(ys))]
        axes.step(xs, best, where="post", label="best so far")
        axes.plot(xs, ys, "o", markersize=4, label="this turn")
        if failed:
            axes.plot(
                failed, [0.0] * len(failed), "x", color="#c02626", markersize=5, label="not correct"
            )
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        axes.set_ylim(bottom=-0.05 * max([1.0, *ys]))
        axes.locator_params(axis="x", integer=True)
        return _svg(figure, axes, "speed per turn")


def roofline_plot(roof: Roofline, points: Sequence[tuple[str, float]]) -> str:
    """Draws turns in a roofline plot: operations a second over operations a byte, both as the
    reference needs them.

    points: name and milliseconds. Empty if a rate is unknown.
    """
    rates = (roof.bytes, roof.operations, roof.bytes_per_second, roof.operations_per_second)
    if not points or any(not rate for rate in rates):
        return ""
    moved, operations, bandwidth, peak = (float(rate or 0) for rate in rates)
    # Left of the ridge the roof is bandwidth * intensity, right of it the peak of operations.
    intensity, ridge = operations / moved, peak / bandwidth
    with _styled():
        figure, axes = _axes("operations a byte", "operations a second")
        lowest, highest = min(intensity, ridge) / 8, max(intensity, ridge) * 8
        axes.plot(
            [lowest, ridge, highest],
            [lowest * bandwidth, peak, peak],
            color="black",
            label=f"roof, {roof.rate_name}",
        )
        axes.axvline(intensity, color="grey", linewidth=0.8, linestyle=":")
        for name, milliseconds in points:
            if milliseconds > 0:
                axes.plot(
                    [intensity],
                    [operations / milliseconds * 1e3],
                    "o",
                    markersize=5,
                    label=_literal(name),
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        return _svg(figure, axes, "roofline")


def _styled() -> Any:
    import matplotlib

    return matplotlib.rc_context(PLOT_STYLE)


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    """Makes the axes without pyplot: no window system, no state between two plots."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _literal(name: str) -> str:
    """Escapes a name for matplotlib: $ would begin mathematics, a leading _ would hide it from
    the legend.
    """
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    return shown.replace("$", r"\$").lstrip("_") or "?"


def _svg(figure: Figure, axes: Axes, title: str) -> str:
    """Returns the SVG element alone, without the XML prologue and without the namespaces and
    metadata, which HTML does not need.
    """
    axes.legend(frameon=False, fontsize=8)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    return text.replace("xlink:href", "href").replace(
        "<svg", f'<svg role="img" aria-label="{title}"', 1
    )


def write_report(report: RunReport, folder: Path) -> list[Path]:
    """Writes report.md, report.csv, report.json and report.html. Raises OSError."""
    from kernelwright.agent.reporting.files import run_page

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.md": write_markdown(report),
        "report.csv": csv_text(report),
        "report.json": report.model_dump_json(indent=2),
        "report.html": run_page(report),
    }
    return [write_text(folder / name, text) for name, text in texts.items()]


def write_text(path: Path, text: str) -> Path:
    """Writes a temporary file and renames it, so the file is never incomplete."""
    temporary_path = path.with_name(f".{path.name}.part")
    temporary_path.write_text(text, encoding="utf-8")
    temporary_path.replace(path)
    return path
