"""Pictures of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl.data.reporting import Facts


def draw_figures(facts: Facts, out: Path) -> list[Path]:
    """families.png and lengths.png."""
    from matplotlib.figure import Figure

    paths = [out / "families.png", out / "lengths.png"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    names = list(facts.families)[::-1]
    axes.barh(names, [facts.families[name] for name in names])
    axes.set_xlabel("rows")
    figure.savefig(paths[0], dpi=100)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for label, values in (("prompt", [p for p, _ in facts.lengths]), ("completion", [c for _, c in facts.lengths])):
        axes.hist(values, bins=60, histtype="step", label=label)
    axes.set_xlabel("characters")
    axes.set_ylabel("rows")
    axes.legend()
    figure.savefig(paths[1], dpi=100)
    return paths
