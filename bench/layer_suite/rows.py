"""Results of the suite as values, and their table."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from bench.layer_suite.layer import LayerSize
from bench.layer_suite.suite import LAYERS, Half
from kernelwright.policies.base import Value
from kernelwright.policies.inductor.draft import DraftMode

HEAD = (
    "| layer | dtype | size | mode | correct | eager ms | torch.compile ms | draft ms | over eager |"
    " over torch.compile | over max-autotune | kernels | left to torch | drafting s | first call s |\n"
    + "|---" * 15
    + "|\n"
)
CORRECT = "yes"


class LayerRow(Value):
    """One layer at one size in one mode."""

    layer: str
    half: Half
    size: LayerSize
    mode: DraftMode
    correct: str = ""
    """`yes`, or the reason why there is no correct draft."""
    milliseconds: dict[str, float] = {}
    """Median time of `eager`, `compile`, `max-autotune` and `draft`, as CUDA graphs."""
    kernels: int = 0
    library_calls: tuple[str, ...] = ()
    draft_seconds: float = 0.0
    launches: dict[str, dict[str, float]] = {}
    """Milliseconds by kernel, of `draft` and `compile`."""
    first_call_seconds: float = 0.0
    """Seconds of the draft's first call, in which its kernels are compiled."""

    def over(self, baseline: str) -> float | None:
        """Returns the baseline's time over the draft's, or None where either was not timed."""
        if baseline in self.milliseconds and "draft" in self.milliseconds:
            return self.milliseconds[baseline] / self.milliseconds["draft"]
        return None

    def line(self) -> str:
        """Returns the row of the table."""
        times = [f"{self.milliseconds[key]:.4f}" if key in self.milliseconds else ""
                 for key in ("eager", "compile", "draft")]  # fmt: skip
        ratios = [
            f"{self.over(key) or 0:.2f}" if self.over(key) else ""
            for key in ("eager", "compile", "max-autotune")
        ]
        cells = [
            self.layer, LAYERS[self.layer].dtype, self.size.value, self.mode.value, self.correct, *times, *ratios,
            str(self.kernels), ", ".join(dict.fromkeys(self.library_calls)), f"{self.draft_seconds:.0f}",
            f"{self.first_call_seconds:.0f}",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def machine_description(device: str) -> str:
    """Returns the device and the versions of Python, torch, Triton and transformers."""
    import torch
    import transformers
    import triton

    name = "a CPU"
    if device != "cpu":
        # Asking torch would begin a CUDA context here, and processes could no longer be forked.
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        name = answer.splitlines()[0] if answer else device
    return (
        f"{name}, Python {platform.python_version()}, torch {torch.__version__}, Triton {triton.__version__}, "
        f"transformers {transformers.__version__}"
    )


def write_rows(path: Path, rows: Iterable[LayerRow], command: str, machine: str) -> None:
    """Writes the table to a Markdown file, and the rows to a JSON file beside it."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(
        json.dumps([row.model_dump(mode="json") for row in rows], indent=1) + "\n", encoding="utf-8"
    )
    text = (
        f"# Layers of installed packages\n\n`{command}`, {machine}, {time.strftime('%Y-%m-%d')}\n"
    )
    for half in Half:
        half_rows = [row for row in rows if row.half is half]
        if half_rows:
            title = "Development half" if half is Half.DEVELOPMENT else "Kept-back half"
            lines = "".join(row.line() + "\n" for row in half_rows)
            text += f"\n## {title}\n\n{summary(half_rows)}\n\n{HEAD}{lines}"
    rows = path.with_suffix(".json").name
    text += f"\nEvery row with its launches: [{rows}]({rows}).\n"
    path.write_text(text, encoding="utf-8")


def summary(rows: list[LayerRow]) -> str:
    """Returns the number of correct layers, and geometric means over the baselines, by mode."""
    layers = sorted({row.layer for row in rows})
    parts = []
    for mode in DraftMode:
        of_mode = [row for row in rows if row.mode is mode]
        if of_mode:
            correct = [name for name in layers if _all_correct(of_mode, name)]
            parts.append(
                f"{mode.value}: {len(correct)} of {len(layers)} layers correct{_means(of_mode)}"
            )
    better = [
        name for name in layers
        if any(_all_correct([row for row in rows if row.mode is mode], name) for mode in DraftMode)
    ]  # fmt: skip
    parts.append(
        f"the better mode: {len(better)} of {len(layers)} layers correct{_means(_fastest(rows))}"
    )
    return ";\n".join(parts) + "."


def _all_correct(rows: list[LayerRow], layer: str) -> bool:
    verdicts = [row.correct == CORRECT for row in rows if row.layer == layer]
    return bool(verdicts) and all(verdicts)


def _fastest(rows: list[LayerRow]) -> list[LayerRow]:
    """Returns the faster correct row of each layer and size."""
    fastest: dict[tuple[str, LayerSize], LayerRow] = {}
    for row in rows:
        key = (row.layer, row.size)
        time_of_row = row.milliseconds.get("draft")
        if row.correct == CORRECT and time_of_row is not None:
            best = fastest.get(key, row)
            fastest[key] = row if time_of_row < best.milliseconds["draft"] else best
    return list(fastest.values())


def _means(rows: list[LayerRow]) -> str:
    """Returns geometric means and least values of the speed over each baseline."""
    texts = []
    for key, name in (
        ("eager", "eager"),
        ("compile", "torch.compile"),
        ("max-autotune", "max-autotune"),
    ):
        ratios = [ratio for row in rows if row.correct == CORRECT and (ratio := row.over(key))]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            slower = sum(ratio < 0.95 for ratio in ratios)
            texts.append(
                f"{mean:.2f} times {name} (least {min(ratios):.2f}, {slower} of {len(ratios)} under 0.95)"
            )
    return "".join(f", {text}" for text in texts)
