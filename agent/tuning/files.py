"""Writes the results of a tuning: the tuned kernel file, and a picture of the tried
configurations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.guarded import GuardedKernel
from kernelwright.agent.runtime.output_files import refuse_unwritable_file
from kernelwright.agent.tuning.tuned import (
    ConfigurationOutcome,
    ParameterGroup,
    TriedConfiguration,
    TuningResult,
)
from kernelwright.errors import InputError
from kernelwright.tools.tuning.kernel_text.parameters import Configuration, ParameterSpace, Setting
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.kernel_text.writing_lists import with_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TUNED_HEADER_MARK = "# Tuned by kernelwright"


def default_path(kernel: Path) -> Path:
    """Returns the default output file in the current folder, `kernel_tuned.py`."""
    return Path(f"{kernel.stem}_tuned.py")


def check_path(path: Path, kernel: Path) -> Path:
    """Raises InputError if the tuned file cannot be written, or exists and was not written by
    this program.
    """
    refuse_unwritable_file(path)
    if path.absolute() == kernel.absolute():
        raise InputError(f"{path} is the kernel itself: name another file with --out")
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.startswith(TUNED_HEADER_MARK):
            raise InputError(
                f"{path} exists and was not written by this program: name another file with --out"
            )
    return path


def journal_of(path: Path) -> Path:
    """Returns the path of the journal beside the tuned file."""
    return path.with_name(f"{path.name}.tuning.jsonl")


def picture_of(path: Path) -> Path:
    """Returns the path of the picture beside a tuned file."""
    return path.with_name(f"{path.stem}.tuning.svg")


def tuned_text(file: TunableFile, space: ParameterSpace, chosen: Sequence[Configuration]) -> str:
    """Returns the file's text with the winning configurations.

    One configuration replaces the old numbers. Several become an autotune list if the file has a
    list or its launch can take one; otherwise the first is used alone.
    """
    fixed = rewrite(file.source, space, chosen[0])
    if len(chosen) < 2:
        return fixed
    return with_list(file, space, chosen) or fixed


def write_tuned(path: Path, kernel: GuardedKernel, tuned: TuningResult, version: str) -> None:
    """Writes the tuned file, with its contract and its measurement in the header. A temporary
    file is written and renamed, so the tuned file is never incomplete.
    """
    changed = tuned.chosen[0].changes if tuned.chosen else {}
    changes = ", ".join(f"{name} {value}" for name, value in changed.items())
    header = [
        f"{TUNED_HEADER_MARK} {version}, {time.strftime('%Y-%m-%d %H:%M:%S')}.",
        f"# problem    {_line(tuned.problem)}",
        f"# measured   on {_line(tuned.device)}: {_times(tuned)}",
        f"# changed    {_line(changes) or 'nothing: no configuration is certainly faster'}",
        *kernel.lines,
    ]
    temporary_path = path.with_name(f".{path.name}.part")
    temporary_path.write_text(
        wrap_comments(header) + "\n" + kernel.text.strip() + "\n", encoding="utf-8", newline=""
    )
    temporary_path.replace(path)


def _times(tuned: TuningResult) -> str:
    chosen_time = tuned.chosen[0].timing if tuned.chosen else None
    if chosen_time is None or tuned.before is None:
        return "no time"
    eager = f", eager PyTorch {tuned.eager.median:.4g} ms" if tuned.eager is not None else ""
    return f"{chosen_time.median:.4g} ms a call, {tuned.before.median:.4g} ms before{eager}"


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


def draw_picture(tuned: TuningResult, path: Path) -> Path:
    """Draws the configurations of every group, best first: measured milliseconds, or the model's
    figure (labelled as such) if nothing was measured.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    groups = [group for group in tuned.groups if _passed_rows(group)] or list(tuned.groups)
    figure = Figure(figsize=(8, 1 + 2.6 * max(1, len(groups))), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(max(1, len(groups)), 1, squeeze=False)
    for axis, group in zip(axes[:, 0], groups, strict=False):
        _draw_group(axis, group)
    device = tuned.device if tuned.measured else f"compiled for {tuned.target}, nothing measured"
    figure.suptitle(
        f"{tuned.problem}: configurations, best first; the file's own in red ({device})",
        fontsize=10,
    )
    figure.savefig(path, metadata={"Date": None})
    return path


def _passed_rows(group: ParameterGroup) -> list[TriedConfiguration]:
    return [row for row in group.rows if row.score.passed]


def _draw_group(axis: Axes, group: ParameterGroup) -> None:
    """Draws a bar for each configuration that compiled, or was timed if any was timed."""
    rows = _passed_rows(group)
    timed = [row for row in rows if row.timing is not None]
    shown = timed or rows
    heights = [_height(row, bool(timed)) for row in shown]
    axis.bar(range(len(shown)), heights, color=[_colour(row) for row in shown])
    if timed:
        low, high = [], []
        for row in timed:
            if row.timing is not None:
                low.append(row.timing.median - row.timing.low)
                high.append(row.timing.high - row.timing.median)
        positions = range(len(shown))
        axis.errorbar(
            positions, heights, yerr=[low, high], fmt="none", ecolor="black", linewidth=0.8
        )
    axis.set_ylabel("milliseconds a call" if timed else "model, over the file's own (no time)")
    axis.set_title(", ".join(_short(name) for name in group.parameters), fontsize=9)
    axis.set_xticks([])


def _colour(row: TriedConfiguration) -> str:
    """Returns red for the file's own configuration, green for the winner, grey for the others."""
    if row.start:
        return "#b5533c"
    return "#2f6f4f" if row.fate is ConfigurationOutcome.WON else "#7a8b99"


def _height(row: TriedConfiguration, timed: bool) -> float:
    if timed:
        return row.timing.median if row.timing is not None else 0.0
    return float(row.relative if row.relative is not None else row.score.cycles or 0.0)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def format_configuration(configuration: Mapping[str, Setting], space_names: Sequence[str]) -> str:
    """Formats a configuration as `BLOCK_M 128, num_warps 8`; the kernel's name is omitted if
    there is only one kernel.
    """
    kernels = {name.partition(".")[0] for name in space_names}
    parts = []
    for name in space_names:
        if name in configuration:
            shown = _short(name) if len(kernels) == 1 else name
            parts.append(f"{shown} {configuration[name]}")
    return ", ".join(parts)
