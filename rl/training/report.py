"""The result of a training: final figures, curves as a picture, and an HTML page with all
measurements.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.policies.base import Value
from kernelwright.rl.training.options import Method
from kernelwright.rl.training.plan import TrainingPlan

CURVE_PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reward", ("reward", "return")),
    ("pass@1 and compile rate, drafts", ("pass_at_1", "compile_rate")),
    ("repairs that are right", ("repair_rate",)),
    ("parts of the reward", ("reward/correct", "reward/compile", "reward/checks", "reward/speed", "reward/share",
    "reward/length", "reward/cheat")),
    ("loss", ("loss",)),
    ("entropy, nats a token", ("entropy",)),
    ("KL to the policy that sampled, nats a token", ("drift/kl", "kl")),
    ("effective sample size", ("drift/effective_sample_size",)),
    ("clipped tokens", ("clip_ratio/region_mean", "cispo_clip_ratio")),
    ("groups without variance", ("zero_variance",)),
    ("tokens a completion", ("completion_length",)),
    ("gradient's norm", ("grad_norm",)),
    ("tokens a second", ("tokens_a_second", "sampled_tokens_a_second")),
    ("seconds a step", ("seconds", "seconds/generation", "seconds/judging", "seconds/training", "seconds/waiting")),
)  # fmt: skip
"""Title and figures of each panel of the curves."""
LOG_FIGURES = (
    "reward",
    "return",
    "pass_at_1",
    "compile_rate",
    "repair_rate",
    "completion_length",
    "zero_variance",
)
"""Figures of the trained turns rather than of the policy. A log fixes them before the training
begins, so they cannot show learning there; so do the parts of the reward, `reward/NAME`.
"""


def is_of_log(name: str) -> bool:
    """Returns whether a figure describes the trained turns, which a log fixes before the
    training.
    """
    return name in LOG_FIGURES or name.startswith("reward/")


class TrainingResult(Value):
    """The result of a training."""

    output: str
    method: Method
    steps: int
    rows: int
    seconds: float
    loss: float | None
    resumed_at: int
    paused: bool = False
    """Whether the time limit ended this sitting: `output` is a checkpoint, and the same command
    continues.
    """
    plan: TrainingPlan | None = None
    figures: dict[str, float] = {}
    """Figures of the last step."""
    base: str | None = None
    """The base model that an adapter must be loaded with."""
    first: bool = True
    """Whether the reporting process is the writing process."""


def series_of(history: Sequence[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Returns the steps and values of a figure, finite values only."""
    steps: list[int] = []
    values: list[float] = []
    for entry in history:
        value = entry.get(name)
        if "step" in entry and isinstance(value, int | float) and math.isfinite(float(value)):
            steps.append(int(entry["step"]))
            values.append(float(value))
    return steps, values


def curve_panels(history: Sequence[dict[str, Any]], from_log: bool) -> list[tuple[str, list[str]]]:
    """Returns the title of each panel with its figures that have values; with `from_log` without
    figures fixed by the log.
    """
    panels = []
    for title, names in CURVE_PANELS:
        drawn = []
        for name in names:
            is_fixed = from_log and is_of_log(name)
            if series_of(history, name)[0] and not is_fixed:
                drawn.append(name)
        if drawn:
            panels.append((title, drawn))
    return panels


def draw_curves(path: Path, history: Sequence[dict[str, Any]], *, from_log: bool = False) -> bool:
    """Draws a small picture for each panel with values. Returns False if there is none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = curve_panels(history, from_log)
    if not panels:
        return False
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(13, 2.7 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (title, names) in enumerate(panels):
        axes = figure.add_subplot(rows, 3, number + 1)
        for name in names:
            steps, values = series_of(history, name)
            axes.plot(steps, values, "." if len(steps) == 1 else "-", linewidth=1.3, label=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("step", fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.25)
        if len(names) > 1:
            axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    return True


def write_training_report(
    folder: Path,
    history: Sequence[dict[str, Any]],
    trained: TrainingResult,
    plan: TrainingPlan | None,
) -> None:
    """Writes history.json, curves.png and report.html (a self-contained page)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.json").write_text(json.dumps(list(history)), encoding="utf-8")
    drawn = draw_curves(folder / "curves.png", history, from_log=plan is not None)
    picture = base64.b64encode((folder / "curves.png").read_bytes()).decode() if drawn else ""
    (folder / "report.html").write_text(_page(history, trained, plan, picture), encoding="utf-8")


def _page(
    history: Sequence[dict[str, Any]],
    trained: TrainingResult,
    plan: TrainingPlan | None,
    picture: str,
) -> str:
    """Returns the report: a table of all figures at the first, middle and last step."""
    steps = [entry for entry in history if "loss" in entry]
    # The first, the middle and the last step.
    shown = (steps[0], steps[len(steps) // 2], steps[-1]) if steps else ()
    note = " (of the log)" if plan is not None else ""
    rows = []
    for name in _logged_names(steps):
        title = f"{name}{note}" if is_of_log(name) else name
        rows.append((title, *(_cell_text(entry.get(name)) for entry in shown)))
    return render_page(
        "training.html.j2",
        title=f"Training: {trained.output}",
        trained=trained,
        plan=plan,
        picture=picture,
        rows=rows,
    )


def _logged_names(steps: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the figures of the panels that some step logs."""
    names = [name for _, panel in CURVE_PANELS for name in panel]
    return [name for name in names if any(name in entry for entry in steps)]


def render_page(template: str, **fields: object) -> str:
    """Renders a template of this folder as a self-contained page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from kernelwright.agent import reporting as beside

    folders = [str(Path(__file__).parent), str(Path(beside.__file__).parent)]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(**fields)


def _cell_text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""
