"""Draws docs/loop.svg, the first picture of the README: the five stages of the loop, and two verdicts.

python docs/loop_picture.py             # draws the picture from docs/loop_verdicts.json
python docs/loop_picture.py --judge     # judges both kernels anew first, and rewrites that file
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "loop.svg"
VERDICTS = ROOT / "docs" / "loop_verdicts.json"
KERNELS = (
    "tests/kernels/good/fused_softmax.py",
    "tests/kernels/bad/mismatch_last_block_bias_mask.py",
)
"""A right kernel, and a wrong one whose verdict names the mistake. Their headers name their problems."""

WIDTH = 960
HEIGHT = 420
MARGIN = 24
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
MONOSPACE = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
INK = "#1f2328"
GREY = "#59636e"
LINE = "#8c959f"
GREEN = "#1a7f37"
RED = "#cf222e"

STAGES = (
    ("draft", ("a model, or torch's", "compiler, writes Triton"), "#ddf4ff"),
    ("trace", ("host code in a sandbox,", "on shapes without values"), "#fff8c5"),
    ("compile", ("kernel texts to binaries,", "in another process"), "#fff8c5"),
    ("replay", ("the trace on real data,", "without the host code"), "#fff8c5"),
    ("judge", ("inputs, seed, reference,", "tolerance, clock"), "#dafbe1"),
)
"""Name, two lines below it, and colour: blue writes, yellow is not trusted, green is trusted."""
STAGE_TOP = 64
STAGE_HEIGHT = 96
STAGE_WIDTH = 160
STAGE_GAP = (WIDTH - 2 * MARGIN - len(STAGES) * STAGE_WIDTH) / (len(STAGES) - 1)
CAPTION = (
    "The candidate's code runs in sandboxes (yellow). Seed, expected outputs, comparison "
    "and clock stay with the judge."
)
LABEL_OF_THE_WAY_BACK = (
    "each failure goes into the next prompt, and every turn into SQLite, to train on"
)
CARD_TOP = 244
CARD_HEIGHT = 152
CARD_WIDTH = (WIDTH - 3 * MARGIN) / 2
CARD_COLUMNS = 54
"""Characters in a line of a verdict."""


def judged(kernel: str) -> dict[str, Any]:
    """Returns what the picture shows of the verdict of `agent check` on a kernel."""
    header = re.match(r"# problem: (\S+)", (ROOT / kernel).read_text(encoding="utf-8"))
    if header is None:
        sys.exit(f"{kernel} does not begin with `# problem: NAME`")
    problem = header[1]
    catalogue = ROOT / "tests" / "kernels" / "problems" / f"{problem}.py"
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "check",
        kernel,
        "--device",
        "cpu",
        "--json",
        "--quiet",
    ]
    command += ["--problem", str(catalogue) if catalogue.is_file() else problem]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    report = json.loads(process.stdout)
    checks = report["interpreted"]["checks"]
    return {
        "kernel": kernel,
        "problem": problem,
        "outcome": report["outcome"],
        "checks": len(checks),
        "passed": sum(check["passed"] for check in checks),
        "share": report["own_work"]["share"] if report["own_work"] else None,
        "registers": report["compiles"][0]["kernels"][0]["registers"],
        "failure": report["failure"]["message"] if report["failure"] else "",
    }


def verdict_lines(verdict: dict[str, Any]) -> list[str]:
    """Returns the lines of a card: what was checked, then the work of its kernels or the mistake."""
    lines = [f"{verdict['passed']} of {verdict['checks']} checks passed (CPU, interpreted)"]
    if verdict["failure"]:
        return lines + textwrap.wrap(verdict["failure"], CARD_COLUMNS)
    lines.append(f"{verdict['share']:.0%} of the operations in its own kernels")
    lines.append(f"compiled for sm_90: {verdict['registers']} registers, no GPU needed")
    return [*lines, "speed: not measured without a GPU"]


def text(x: float, y: float, content: str, size: int = 13, **style: str) -> str:
    """Returns an SVG text; a keyword such as `text_anchor` is the attribute `text-anchor`."""
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{attributes}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = LINE) -> str:
    """Returns an SVG rectangle with round corners."""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} rx="8" fill="{fill}" stroke="{stroke}"/>'


def stage(number: int) -> list[str]:
    """Returns the elements of one stage, and the arrow from the stage before it."""
    name, lines, colour = STAGES[number]
    x = MARGIN + number * (STAGE_WIDTH + STAGE_GAP)
    middle = x + STAGE_WIDTH / 2
    elements = [box(x, STAGE_TOP, STAGE_WIDTH, STAGE_HEIGHT, colour)]
    elements.append(text(middle, STAGE_TOP + 34, name, 18, text_anchor="middle", font_weight="600"))
    for row, line in enumerate(lines):
        elements.append(
            text(middle, STAGE_TOP + 60 + 18 * row, line, 12, text_anchor="middle", fill=GREY)
        )
    if number:
        y = STAGE_TOP + STAGE_HEIGHT / 2
        elements.append(
            f'<path d="M{x - STAGE_GAP + 4:g} {y:g} H{x - 5:g}" marker-end="url(#arrow)"/>'
        )
    return elements


def way_back() -> list[str]:
    """Returns the arrow from the judge back to the draft, and its label."""
    first = MARGIN + STAGE_WIDTH / 2
    last = WIDTH - MARGIN - STAGE_WIDTH / 2
    bottom = STAGE_TOP + STAGE_HEIGHT
    arrow = f"M{last:g} {bottom + 4} V{bottom + 34} H{first:g} V{bottom + 6}"
    return [
        f'<path d="{arrow}" marker-end="url(#arrow)"/>',
        text(WIDTH / 2, bottom + 54, LABEL_OF_THE_WAY_BACK, text_anchor="middle", fill=GREY),
    ]


def card(number: int, verdict: dict[str, Any]) -> list[str]:
    """Returns the elements of one verdict."""
    x = MARGIN + number * (CARD_WIDTH + MARGIN)
    colour = RED if verdict["failure"] else GREEN
    elements = [box(x, CARD_TOP, CARD_WIDTH, CARD_HEIGHT, "#f6f8fa", colour)]
    elements.append(
        text(x + 16, CARD_TOP + 30, verdict["outcome"], 16, fill=colour, font_weight="600")
    )
    elements.append(
        text(
            x + CARD_WIDTH - 16, CARD_TOP + 30, verdict["problem"], 13, fill=GREY, text_anchor="end"
        )
    )
    for row, line in enumerate(verdict_lines(verdict)):
        elements.append(text(x + 16, CARD_TOP + 58 + 20 * row, line, 12, font_family=MONOSPACE))
    return elements


def picture(verdicts: list[dict[str, Any]]) -> str:
    """Returns the SVG."""
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    marker = 'viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto"'
    arrow = f'<path d="M0 0 L10 5 L0 10 z" fill="{LINE}" stroke="none"/>'
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escape(FONT, quote=True)}" role="img">',
        "<title>Draft, trace, compile, replay, judge: the loop of Kernelwright, and two verdicts</title>",
        f'<defs><marker id="arrow" {marker}>{arrow}</marker></defs>',
        box(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "#ffffff", "#d1d9e0"),
        f'<g fill="none" stroke="{LINE}" stroke-width="1.5">',
    ]
    drawn = [element for number in range(len(STAGES)) for element in stage(number)] + way_back()
    elements += [element for element in drawn if element.startswith("<path")] + [
        "</g>",
        f'<g fill="{INK}">',
    ]
    elements += [element for element in drawn if not element.startswith("<path")]
    elements.append(text(MARGIN, 38, CAPTION, fill=GREY))
    for number, verdict in enumerate(verdicts):
        elements += card(number, verdict)
    return "\n".join([*elements, "</g>", "</svg>", ""])


def main() -> None:
    """Draws the picture, with `--judge` from verdicts of today."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--judge", action="store_true", help="judge both kernels anew (a minute without a GPU)"
    )
    if parser.parse_args().judge:
        verdicts = [judged(kernel) for kernel in KERNELS]
        VERDICTS.write_text(json.dumps(verdicts, indent=2) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(json.loads(VERDICTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
