"""The report of a loop: loop.png and report.html, rewritten after every cycle."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.rl.training.online.loop_folder import Cycle
from kernelwright.rl.training.online.measuring import PolicyComparison
from kernelwright.rl.training.report import render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE, PAGE = "loop.png", "report.html"


def write_loop_report(folder: Path, cycles: Sequence[Cycle]) -> None:
    """Writes picture and page; nothing before the first finished cycle."""
    if not cycles:
        return
    draw_cycles(folder / PICTURE, cycles)
    picture = base64.b64encode((folder / PICTURE).read_bytes()).decode()
    page = render_page("loop.html.j2", title=f"Loop: {folder}", cycles=cycles, picture=picture)
    (folder / PAGE).write_text(page, encoding="utf-8")


def draw_cycles(path: Path, cycles: Sequence[Cycle]) -> None:
    """Draws pass@1 on each held-out split after each cycle: the candidate, with the 95 % interval
    of its difference, and the policy before the cycle.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    splits = [comparison.split for comparison in cycles[0].compared]
    figure = Figure(figsize=(max(5.0, 4.2 * len(splits)), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    numbers = [cycle.cycle + 1 for cycle in cycles]
    for column, split in enumerate(splits):
        axes = figure.add_subplot(1, len(splits), column + 1)
        _draw_split(
            axes,
            numbers,
            [cycle.compared[column] for cycle in cycles],
            [cycle.promoted for cycle in cycles],
        )
        axes.set_title(split, fontsize=9)
        axes.set_xlabel("cycle")
        axes.set_ylabel("held-out pass@1, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(0.5, numbers[-1] + 0.5)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _draw_split(
    axes: Axes,
    numbers: Sequence[int],
    compared: Sequence[PolicyComparison],
    promoted: Sequence[bool],
) -> None:
    """Draws a held-out split. The interval of the difference is centred at the candidate's
    figure.
    """
    before: list[float] = []
    after: list[float] = []
    # Lengths of the error bars below and above the candidate's figure.
    below: list[float] = []
    above: list[float] = []
    for comparison in compared:
        before.append(100 * comparison.before)
        after.append(100 * comparison.after)
        below.append(100 * max(0.0, comparison.difference - comparison.low))
        above.append(100 * max(0.0, comparison.high - comparison.difference))
    axes.plot(numbers, before, "_", markersize=16, color="#888888", label="policy before the cycle")
    axes.errorbar(numbers, after, yerr=[below, above], fmt="none", ecolor="#9ecae1", capsize=3)
    for is_promoted, marker, name in (
        (True, "o", "candidate, promoted"),
        (False, "x", "candidate, not promoted"),
    ):
        selected = [index for index, flag in enumerate(promoted) if flag is is_promoted]
        if selected:
            x = [numbers[index] for index in selected]
            y = [after[index] for index in selected]
            axes.plot(x, y, marker, color="#2171b5", label=name)
