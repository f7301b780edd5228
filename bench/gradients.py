"""Counts the layers of bench/gradient_layers.txt whose gradients are right, by the compiler's drafts.

    python -m bench.gradients --out bench/results/gradients.md [--kept-back] [NAME ...]

A layer counts where both problems are judged right and the written file, called as a user calls it, has the outputs
and the gradients of the reference in float64. Without --kept-back the layers of the other half are run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.gradient_layers import GradientLayer, kept_back, read_layers
from kernelwright.agent.command_line.options import BudgetOptions, JudgingOptions
from kernelwright.agent.command_line.policy.options import SamplingOptions
from kernelwright.agent.command_line.solve import solve_settings
from kernelwright.agent.gradients.solving import solve_with_gradients
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem, ProblemError

FILE_SECONDS = 120


def outcome(layer: GradientLayer, folder: Path, device: str) -> dict[str, str]:
    """Solves a layer, and runs the written file in a process of its own."""
    start = time.monotonic()
    path = folder / f"{layer.name}_triton.py"
    settings = solve_settings(
        "compiler", SamplingOptions(), BudgetOptions(), JudgingOptions(device=device)
    )
    row = {"layer": layer.name, "family": layer.family, "outcome": "", "lines": ""}
    try:
        solved = solve_with_gradients(
            Problem(name=f"{layer.name}.py", source=layer.source),
            lambda: SamplingOptions().open_policy("compiler"),
            settings,
            db=str(folder / "runs.db"),
            output=path,
            watch=lambda *_: None,
            say=lambda _: None,
        )
    except (InputError, ProblemError) as error:
        return {**row, "outcome": f"refused: {error}"}
    failed = solved.gradients or solved.forward
    if not failed.correct:
        reason = failed.report.explanation if failed.report else failed.message
        side = "gradients" if solved.gradients else "forward"
        return {**row, "outcome": f"{side}: {' '.join(reason.split())[:300]}"}
    (folder / f"{layer.name}.py").write_text(layer.source)
    row["differences"] = (
        f"{solved.facts.difference:.1g}" if solved.facts.difference is not None else "none"
    )
    row["outcome"] = file_outcome(path, folder / f"{layer.name}.py")
    row["lines"] = str(len(path.read_text().splitlines()))
    row["seconds"] = f"{time.monotonic() - start:.0f}"
    return row


def file_outcome(kernel: Path, problem: Path) -> str:
    """Returns "right", or how the file differs from the reference."""
    import torch

    environment = (
        dict(os.environ) if torch.cuda.is_available() else {**os.environ, "TRITON_INTERPRET": "1"}
    )
    command = [sys.executable, "-m", "bench.gradient_calls", str(kernel), str(problem)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=FILE_SECONDS
    )
    lines = ended.stdout.strip().splitlines() or ended.stderr.strip().splitlines()
    return str(json.loads(lines[-1])) if ended.returncode == 0 else f"file: {lines[-1][:200]}"


def page(rows: list[dict[str, str]], is_kept_back: bool, device: str) -> str:
    """Returns the table of the outcomes."""
    import torch

    right = sum(row["outcome"] == "right" for row in rows)
    half = "kept back" if is_kept_back else "developed on"
    lines = [
        f"## Layers {half}: {right} of {len(rows)} right",
        "",
        f"`python -m bench.gradients{' --kept-back' if is_kept_back else ''}`, torch {torch.__version__}, {device}, "
        f"{time.strftime('%Y-%m-%d')}.",
        "",
        "| layer | family | gradients | differences in float64 | lines of the file | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row.get(name, "")
            for name in ("layer", "family", "outcome", "differences", "lines", "seconds")
        ]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Solves the layers and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kept-back", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, help="keep the files here, and go on from them")
    arguments = parser.parse_args()
    layers = read_layers()
    chosen = [layer for layer in layers if (layer.name in kept_back(layers)) == arguments.kept_back]
    if arguments.names:
        chosen = [layer for layer in layers if layer.name in arguments.names]
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "rows.jsonl"
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    rows = [row for row in known if row["layer"] in {layer.name for layer in chosen}]
    for layer in [layer for layer in chosen if layer.name not in {row["layer"] for row in rows}]:
        rows.append(outcome(layer, folder, arguments.device))
        with log.open("a") as file:
            print(json.dumps(rows[-1]), file=file, flush=True)
    text = page(rows, arguments.kept_back, arguments.device)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
