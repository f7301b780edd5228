"""Plots as inline SVG: text stays text, nothing is loaded from anywhere."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.figures import Figures
from tools.results import Roofline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {
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
    """Share of problems over p, with its interval."""
    with _styled():
        figure, axes = _axes("p: speedup over eager PyTorch, strictly more than", "fast_p (% of problems)")
        for name, found in groups:
            points = [(p, e) for p, e in found.fast.items() if e.value is not None]
            xs, ys = [p for p, _ in points], [100 * (e.value or 0.0) for _, e in points]
            lows = [100 * (e.value if e.low is None else e.low) for _, e in points if e.value is not None]
            highs = [100 * (e.value if e.high is None else e.high) for _, e in points if e.value is not None]
            axes.fill_between(xs, lows, highs, alpha=0.15, linewidth=0)
            axes.plot(xs, ys, marker="o", markersize=4, label=_literal(name))
        axes.set_ylim(-3, 103)
        return _svg(figure, axes, "fast_p")


def pass_at_k_plot(groups: Sequence[tuple[str, Figures]]) -> str:
    """Empty where there is one sample a problem: a point is no curve."""
    if all(len(found.pass_at) < 2 for _, found in groups):
        return ""
    with _styled():
        figure, axes = _axes("k", "pass@k (% of problems)")
        for name, found in groups:
            values = [100 * (estimate.value or 0.0) for estimate in found.pass_at.values()]
            axes.plot(list(found.pass_at), values, marker="o", markersize=4, label=_literal(name))
        axes.set_xscale("log", base=2)
        axes.set_ylim(-3, 103)
        axes.xaxis.set_major_formatter("{x:.0f}")
        return _svg(figure, axes, "pass@k")


def speed_plot(
    turns: Sequence[tuple[int, float]], failed: Sequence[int] = (), of: str = "speedup over eager PyTorch"
) -> str:
    """Of each correct turn, and the best so far; `failed` are turns without a speed. Empty where none was timed."""
    if not turns:
        return ""
    with _styled():
        figure, axes = _axes("turn", of)
        xs, ys = [turn for turn, _ in turns], [speed for _, speed in turns]
        best = [max(ys[: place + 1]) for place in range(len(ys))]
        axes.step(xs, best, where="post", label="best so far")
        axes.plot(xs, ys, "o", markersize=4, label="this turn")
        if failed:
            axes.plot(failed, [0.0] * len(failed), "x", color="#c02626", markersize=5, label="not correct")
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        axes.set_ylim(bottom=-0.05 * max([1.0, *ys]))
        axes.locator_params(axis="x", integer=True)
        return _svg(figure, axes, "speed per turn")


def roofline_plot(roof: Roofline, points: Sequence[tuple[str, float]]) -> str:
    """points: name and milliseconds. Operations a second over operations a byte, both as the reference needs them. Empty where a rate is unknown."""
    rates = (roof.bytes, roof.operations, roof.bytes_per_second, roof.operations_per_second)
    if not points or any(not rate for rate in rates):
        return ""
    moved, operations, bandwidth, peak = (float(rate or 0) for rate in rates)
    intensity, ridge = operations / moved, peak / bandwidth
    with _styled():
        figure, axes = _axes("operations a byte", "operations a second")
        left, right = min(intensity, ridge) / 8, max(intensity, ridge) * 8
        axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="black", label=f"roof, {roof.rate_name}")
        axes.axvline(intensity, color="grey", linewidth=0.8, linestyle=":")
        for name, milliseconds in points:
            if milliseconds > 0:
                axes.plot([intensity], [operations / milliseconds * 1e3], "o", markersize=5, label=_literal(name))
        axes.set_xscale("log")
        axes.set_yscale("log")
        return _svg(figure, axes, "roofline")


def _styled() -> Any:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    """Without pyplot: no window system, no state between two plots."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _literal(name: str) -> str:
    """A $ would begin mathematics, a leading _ would leave it out of the legend."""
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    return shown.replace("$", r"\$").lstrip("_") or "?"


def _svg(figure: Figure, axes: Axes, title: str) -> str:
    """The element alone: without the XML prologue, and without the namespaces and metadata that HTML does not need."""
    axes.legend(frameon=False, fontsize=8)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    return text.replace("xlink:href", "href").replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
