"""README.md of a fine-tuned model: what it is, what it was trained on, how, and what came of it, with the loss as a
picture. The card that programs read is `kernelwright.policies.policy_card`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.agent.reporting.files import write_text
from kernelwright.policies.policy_card import PolicyCard, front_matter
from kernelwright.rl.training.sft.options import FineTuningResult, SftOptions
from kernelwright.rl.training.sft.presets import PRESETS
from kernelwright.tools.hardware.gpus import read_driver
from kernelwright.tools.hardware.machine_info import version

LOSS_PICTURE_FILE = "loss.png"
FIGURES = "training.json"
BEGIN, END = "<!-- evaluation -->", "<!-- /evaluation -->"


def write_readme(
    folder: Path, options: SftOptions, trained: FineTuningResult, command: str
) -> None:
    """README.md, loss.png and training.json."""
    draw_losses(folder / LOSS_PICTURE_FILE, trained.losses, trained.held_losses)
    write_text(folder / FIGURES, trained.model_dump_json(indent=2) + "\n")
    write_text(folder / "README.md", card(options, trained, command))


def card(options: SftOptions, trained: FineTuningResult, command: str) -> str:
    """Writes the README.md of a fine-tuned policy; `command` is the command line that made it."""
    said = PolicyCard(base=options.base, method="sft")
    return front_matter(said) + "\n".join(
        [
            f"# {options.output.name}",
            "",
            _what(options, trained),
            "",
            "It writes Triton kernels and mends them. What it writes is to be judged by the tools before "
            "anybody relies on it. It knows the families that "
            "its rows hold; of others it writes what looks like them.",
            "",
            "## Data",
            "",
            f"`{options.data}`, prompts in the {options.choice.form} form.",
            "",
            *_table(
                ("rows", "number"),
                [(name, f"{number:,}") for name, number in sorted(trained.rows.items())],
            ),
            *_sources(options.data),
            "",
            "## Training",
            "",
            *_table(("", ""), _figures(options, trained)),
            "",
            f"![The loss]({LOSS_PICTURE_FILE})",
            "",
            "    " + command,
            "",
            "Settings of trl's SFTConfig: "
            + ", ".join(f"`{n}={v}`" for n, v in sorted(trained.config.items()))
            + ".",
            "",
            "## Evaluation",
            "",
            BEGIN,
            f"Not evaluated yet: `rl evaluate {_named(options)} --suite synth:composition --samples 10 "
            "--turns 4 --card` writes it "
            "here.",
            END,
            "",
        ]
    )


def _named(options: SftOptions) -> str:
    """Returns the name that commands know it by; of an adapter also what it was made for."""
    if PRESETS[options.preset].lora is None:
        return f"--policy transformers:{options.output}"
    return f"--policy transformers:{options.base} --adapter {options.output}"


def _what(options: SftOptions, trained: FineTuningResult) -> str:
    if trained.trained < trained.parameters:
        held = (
            ", held in 4 bits (NF4) while it was trained"
            if PRESETS[options.preset].four_bit
            else ""
        )
        return (
            f"A LoRA adapter ({trained.trained:,} weights) for `{trained.base}`{held}, by `rl sft --preset "
            f"{options.preset}`."
        )
    made = (
        f"from random weights (`{trained.base}`)"
        if trained.base.startswith("new:")
        else f"starting from `{trained.base}`"
    )
    return (
        f"A model of {trained.parameters:,} weights ({options.storage}), trained {made} by `rl sft --preset "
        f"{options.preset}`."
    )


def _figures(options: SftOptions, trained: FineTuningResult) -> list[tuple[str, str]]:
    held = "none kept back" if trained.held_loss is None else f"{trained.held_loss:.4f}"
    rows = [
        ("steps", f"{trained.steps:,} ({trained.epochs:.2f} epochs)"),
        ("loss, nats a token", f"{trained.loss:.4f}"),
        ("loss on rows kept back", held),
        ("tokens", f"{trained.tokens:,}"),
        ("tokens a second", f"{trained.tokens_a_second:,.0f}"),
        ("wall time", f"{trained.seconds:.0f} s"),
    ]
    if trained.padding is not None:
        rows.append(("padding, of what was computed", f"{trained.padding:.1%}"))
    if trained.gpu_memory:
        rows.append(("GPU memory at most", f"{trained.gpu_memory / 2**30:.1f} GiB"))
    rows += [
        ("machine", machine_line(options.device)),
        (
            "libraries",
            ", ".join(f"{name} {version(name)}" for name in _libraries(options) if version(name)),
        ),
        ("date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("git revision", git_revision()),
        ("seed", str(options.seed)),
    ]
    return rows


def _libraries(options: SftOptions) -> list[str]:
    preset = PRESETS[options.preset]
    adapted = ["peft"] if preset.lora or options.adapter else []
    return [
        "torch",
        "transformers",
        "trl",
        *adapted,
        *(["bitsandbytes"] if preset.four_bit else []),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(str(c) for c in row)} |" for row in rows),
    ]


def _sources(data: Path) -> list[str]:
    """Returns the sources that a corpus names in its own files."""
    file = data / "provenance.json" if data.is_dir() else data.with_name("provenance.json")
    if not file.is_file():
        return []
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return []
    return [
        "",
        "Where the rows are from:",
        "",
        "```json",
        json.dumps(content, indent=1)[:4000],
        "```",
    ]


def machine_line(device: str) -> str:
    """The GPU, or the processor with its cores."""
    import os

    if device.startswith("cuda"):
        gpus = read_driver().gpus
        if gpus:
            return f"{gpus[0].name} ({os.cpu_count()} CPU cores)"
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next(
            line.partition(":")[2].strip()
            for line in text.splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = "CPU"
    return f"{name}, {os.cpu_count()} cores"


def git_revision() -> str:
    """Returns the git revision of this project's checkout, with + where it is changed; empty where it is none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parents[3]), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return f"kernelwright {version('kernelwright') or '(not installed)'}"
    return done.stdout.strip()


def draw_losses(
    path: Path,
    losses: Sequence[tuple[int, float]],
    held: Sequence[tuple[int, float]],
    size: tuple[float, float] = (6, 3.6),
) -> None:
    """Loss over steps, logarithmic, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        [step for step, _ in losses],
        [loss for _, loss in losses],
        linewidth=1.2,
        label="rows trained on",
    )
    if held:
        axes.plot(
            [step for step, _ in held],
            [loss for _, loss in held],
            "o-",
            markersize=3,
            label="rows kept back",
        )
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a token")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def put_evaluation(readme: Path, text: str) -> None:
    """Writes an evaluation at the place that the card keeps for it; at the end of a card of another kind."""
    own = f"{BEGIN}\n{text.strip()}\n{END}"
    card = readme.read_text(encoding="utf-8") if readme.is_file() else f"# {readme.parent.name}\n"
    before, begin, rest = card.partition(BEGIN)
    if begin and END in rest:
        card = before + own + rest.partition(END)[2]
    else:
        card = f"{card.rstrip()}\n\n## Evaluation\n\n{own}\n"
    write_text(readme, card)
