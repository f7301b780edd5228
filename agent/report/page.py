"""One self-contained HTML page: everything that others wrote is escaped, and the page itself forbids whatever would be loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from agent.report import texts
from agent.report.plots import fast_p_plot, pass_at_k_plot, roofline_plot, speed_plot
from agent.report.run_report import RunReport
from agent.report.trajectory_report import TrajectoryReport, speeds

POINTS = 8
"""Of the fastest turns, in the roofline."""


def run_page(report: RunReport) -> str:
    groups = [(group.label, group.figures) for group in report.groups]
    return _render(
        "run.html.j2",
        title=f"Run {report.run}",
        report=report,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report.created)),
        plots=[plot for plot in (fast_p_plot(groups), pass_at_k_plot(groups)) if plot],
        method=texts.METHOD,
        figure_rows=texts.figure_rows,
        against_head=texts.AGAINST_HEAD,
        against_rows=texts.against_rows,
        row_head=texts.ROW_HEAD,
    )


def trajectory_page(report: TrajectoryReport) -> str:
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
    """Why there is no plot of speeds; empty where there is one."""
    if speeds(report.turns):
        return ""
    if any(turn.correct for turn in report.turns):
        return "No speed and no roofline: what is correct was judged on a CPU, where nothing is timed."
    return "No speed and no roofline: no turn is correct."


def _points(report: TrajectoryReport) -> list[tuple[str, float]]:
    timed = [(turn.number, turn.milliseconds) for turn in report.turns if turn.milliseconds is not None]
    fastest = sorted(timed, key=lambda turn: turn[1])[:POINTS]
    points = [(f"turn {number}", milliseconds) for number, milliseconds in fastest]
    return [*points, *([("eager", report.eager_milliseconds)] if report.eager_milliseconds else [])]


def _render(template: str, **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["problem_cells"] = texts.problem_cells
    return environment.get_template(template).render(**values)
