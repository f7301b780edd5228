"""What a tuning leaves behind: the tuned kernel file, and a picture of what was tried."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.guarded import GuardedKernel
from kernelwright.agent.runtime.output_files import refuse_unwritable_file
from kernelwright.agent.tuning.tuned import ConfigurationOutcome, TriedConfiguration, TuningResult
from kernelwright.errors import InputError
from kernelwright.tools.tuning.kernel_text.parameters import Configuration, ParameterSpace, Setting
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.kernel_text.writing_lists import with_list

TUNED_HEADER_MARK = "# Tuned by kernelwright"


def default_path(kernel: Path) -> Path:
    """`kernel_tuned.py` beside the current folder's other files."""
    return Path(f"{kernel.stem}_tuned.py")


def check_path(path: Path, kernel: Path) -> Path:
    """Raises InputError where the tuned file could not be written, or would take the place of someone's own."""
    refuse_unwritable_file(path)
    if path.absolute() == kernel.absolute():
        raise InputError(f"{path} is the kernel itself: name another file with --out")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(
        TUNED_HEADER_MARK
    ):
        raise InputError(
            f"{path} exists and was not written by this program: name another file with --out"
        )
    return path


def journal_of(path: Path) -> Path:
    """Returns the place of the journal, beside the tuned file."""
    return path.with_name(f"{path.name}.tuning.jsonl")


def picture_of(path: Path) -> Path:
    """Returns the path of the picture beside a tuned file."""
    return path.with_name(f"{path.stem}.tuning.svg")


def tuned_text(file: TunableFile, space: ParameterSpace, chosen: Sequence[Configuration]) -> str:
    """The file with the configurations that won.

    One: its numbers in place of the old ones. Several: as an autotune list, where the file has one or its launch can
    take one; else the first alone.
    """
    fixed = rewrite(file.source, space, chosen[0])
    if len(chosen) < 2:
        return fixed
    return with_list(file, space, chosen) or fixed


def write_tuned(path: Path, kernel: GuardedKernel, tuned: TuningResult, version: str) -> None:
    """Writes the tuned file, with its contract and how it was measured in its header. Written beside and renamed, so
    that there is never half of it.
    """
    changes = ", ".join(
        f"{n} {v}" for n, v in (tuned.chosen[0].changes if tuned.chosen else {}).items()
    )
    header = [
        f"{TUNED_HEADER_MARK} {version}, {time.strftime('%Y-%m-%d %H:%M:%S')}.",
        f"# problem    {_line(tuned.problem)}",
        f"# measured   on {_line(tuned.device)}: {_times(tuned)}",
        f"# changed    {_line(changes) or 'nothing: no configuration is certainly faster'}",
        *kernel.lines,
    ]
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(
        wrap_comments(header) + "\n" + kernel.text.strip() + "\n", encoding="utf-8", newline=""
    )
    beside.replace(path)


def _times(tuned: TuningResult) -> str:
    after = tuned.chosen[0].timing if tuned.chosen else None
    if after is None or tuned.before is None:
        return "no time"
    eager = f", eager PyTorch {tuned.eager.median:.4g} ms" if tuned.eager is not None else ""
    return f"{after.median:.4g} ms a call, {tuned.before.median:.4g} ms before{eager}"


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


def draw_picture(tuned: TuningResult, path: Path) -> Path:
    """A picture: of every group its configurations, best first; milliseconds where they were measured, else the model's
    figure, which is named as such."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    groups = [g for g in tuned.groups if any(r.score.passed for r in g.rows)] or list(tuned.groups)
    figure = Figure(figsize=(8, 1 + 2.6 * max(1, len(groups))), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(max(1, len(groups)), 1, squeeze=False)
    for axis, group in zip(axes[:, 0], groups, strict=False):
        rows = [r for r in group.rows if r.score.passed]
        timed = [r for r in rows if r.timing is not None]
        shown = timed or rows
        heights = [_height(r, bool(timed)) for r in shown]
        colours = [
            "#b5533c" if r.start else "#2f6f4f" if r.fate is ConfigurationOutcome.WON else "#7a8b99"
            for r in shown
        ]
        axis.bar(range(len(shown)), heights, color=colours)
        if timed:
            low = [r.timing.median - r.timing.low for r in timed if r.timing is not None]
            high = [r.timing.high - r.timing.median for r in timed if r.timing is not None]
            axis.errorbar(
                range(len(shown)),
                heights,
                yerr=[low, high],
                fmt="none",
                ecolor="black",
                linewidth=0.8,
            )
        axis.set_ylabel("milliseconds a call" if timed else "model, over the file's own (no time)")
        axis.set_title(", ".join(_short(n) for n in group.parameters), fontsize=9)
        axis.set_xticks([])
    where = tuned.device if tuned.measured else f"compiled for {tuned.target}, nothing measured"
    figure.suptitle(
        f"{tuned.problem}: configurations, best first; the file's own in red ({where})", fontsize=10
    )
    figure.savefig(path, metadata={"Date": None})
    return path


def _height(row: TriedConfiguration, timed: bool) -> float:
    if timed:
        return row.timing.median if row.timing is not None else 0.0
    return float(row.relative if row.relative is not None else row.score.cycles or 0.0)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def format_configuration(configuration: Mapping[str, Setting], space_names: Sequence[str]) -> str:
    """`BLOCK_M 128, num_warps 8`: the kernel's name is left out where there is one kernel."""
    kernels = {name.partition(".")[0] for name in space_names}
    return ", ".join(
        f"{_short(name) if len(kernels) == 1 else name} {configuration[name]}"
        for name in space_names
        if name in configuration
    )
