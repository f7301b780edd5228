"""README.md of a fine-tuned model: description, data, settings, results, and the loss as a
picture. Programs read `kernelwright.policies.policy_card` instead.
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
    """Writes README.md, loss.png and training.json."""
    draw_losses(folder / LOSS_PICTURE_FILE, trained.losses, trained.held_losses)
    write_text(folder / FIGURES, trained.model_dump_json(indent=2) + "\n")
    write_text(folder / "README.md", card(options, trained, command))


def card(options: SftOptions, trained: FineTuningResult, command: str) -> str:
    """Returns the README.md of a fine-tuned policy; `command` is the command line of the
    training.
    """
    front = PolicyCard(base=options.base, method="sft")
    return front_matter(front) + "\n".join(
        [
            f"# {options.output.name}",
            "",
            _summary(options, trained),
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
    """Returns the options that select the model in a command; for an adapter its base too."""
    if PRESETS[options.preset].lora is None:
        return f"--policy transformers:{options.output}"
    return f"--policy transformers:{options.base} --adapter {options.output}"


def _summary(options: SftOptions, trained: FineTuningResult) -> str:
    """Returns the sentence that says what the model is."""
    if trained.trained < trained.parameters:
        four_bit = PRESETS[options.preset].four_bit
        held = ", held in 4 bits (NF4) while it was trained" if four_bit else ""
        return (
            f"A LoRA adapter ({trained.trained:,} weights) for `{trained.base}`{held}, by `rl sft --preset "
            f"{options.preset}`."
        )
    origin = f"starting from `{trained.base}`"
    if trained.base.startswith("new:"):
        origin = f"from random weights (`{trained.base}`)"
    return (
        f"A model of {trained.parameters:,} weights ({options.storage}), trained {origin} by `rl sft --preset "
        f"{options.preset}`."
    )


def _figures(options: SftOptions, trained: FineTuningResult) -> list[tuple[str, str]]:
    """Returns the rows of the table of results and of the machine."""
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
    installed = [f"{name} {version(name)}" for name in _libraries(options) if version(name)]
    rows += [
        ("machine", machine_line(options.device)),
        ("libraries", ", ".join(installed)),
        ("date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("git revision", git_revision()),
        ("seed", str(options.seed)),
    ]
    return rows


def _libraries(options: SftOptions) -> list[str]:
    preset = PRESETS[options.preset]
    names = ["torch", "transformers", "trl"]
    if preset.lora or options.adapter:
        names.append("peft")
    if preset.four_bit:
        names.append("bitsandbytes")
    return names


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append(f"| {' | '.join(map(str, row))} |")
    return lines


def _sources(data: Path) -> list[str]:
    """Returns the sources named by a corpus in its own files."""
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
    """Returns the GPU, or the processor with its cores."""
    import os

    if device.startswith("cuda"):
        gpus = read_driver().gpus
        if gpus:
            return f"{gpus[0].name} ({os.cpu_count()} CPU cores)"
    return f"{_processor_name()}, {os.cpu_count()} cores"


def _processor_name() -> str:
    """Returns the model name of Linux's /proc/cpuinfo, or `CPU`."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "CPU"
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "CPU"


def git_revision() -> str:
    """Returns the git revision of this project's checkout, with + if changed; outside a checkout
    the version.
    """
    root = str(Path(__file__).parents[3])
    command = ["git", "-C", root, "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"kernelwright {version('kernelwright') or '(not installed)'}"
    return done.stdout.strip()


def draw_losses(
    path: Path,
    losses: Sequence[tuple[int, float]],
    held: Sequence[tuple[int, float]],
    size: tuple[float, float] = (6, 3.6),
) -> None:
    """Draws the loss over steps, on a logarithmic axis, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(*_columns(losses), linewidth=1.2, label="rows trained on")
    if held:
        axes.plot(*_columns(held), "o-", markersize=3, label="rows kept back")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a token")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [loss for _, loss in points]


def put_evaluation(readme: Path, text: str) -> None:
    """Writes an evaluation between the marks of a card; at the end of a card without marks."""
    section = f"{BEGIN}\n{text.strip()}\n{END}"
    card = readme.read_text(encoding="utf-8") if readme.is_file() else f"# {readme.parent.name}\n"
    before, begin, after = card.partition(BEGIN)
    if begin and END in after:
        card = before + section + after.partition(END)[2]
    else:
        card = f"{card.rstrip()}\n\n## Evaluation\n\n{section}\n"
    write_text(readme, card)
