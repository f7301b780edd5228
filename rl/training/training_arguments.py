"""Options that `rl train` and `rl loop` share, and their parsing into fields of TrainOptions.

The command line imports this module: nothing heavy is imported at its top.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

PolicyName = Annotated[str, typer.Option("--policy", help="What is trained: embedded, transformers:DIR or vllm:DIR.")]
Adapter = Annotated[str | None, typer.Option(help="A LoRA adapter that is gone on with.", show_default=False)]
Output = Annotated[
    Path, typer.Option("--out", help="The folder for the policy; checkpoints lie beside it in OUT.training.")
]
Reward = Annotated[str, typer.Option(help="default, execution, autotriton, kevin, drkernel, a .json file, or auto.")]
Gamma = Annotated[float, typer.Option(min=0.0, max=1.0, help="Discount of what later turns of a lineage earn.")]
BaselineName = Annotated[str, typer.Option("--baseline", help="leave-one-out or mean, inside (problem, turn).")]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Optimizer steps.", show_default=False)]
MaxMinutes = Annotated[
    float | None,
    typer.Option(min=0.01, help="Saves and stops after so long; the same command goes on.", show_default=False),
]
Lora = Annotated[bool, typer.Option("--lora", help="Train a LoRA adapter; without it all weights, or --adapter's.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="NAME=VALUE: a field of trl's config of that method. May be repeated.", show_default=False
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the problems and the draws.")]
StorageName = Annotated[str, typer.Option("--storage", help="fp32 or bf16: how the weights are written.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an internal error came from.")]


def training_fields(
    policy: str, adapter: str | None, output: Path, reward: str, gamma: float, baseline: str, max_steps: int | None,
    max_minutes: float | None, lora: bool, settings: list[str] | None, device: str, seed: int, storage: str,
) -> dict[str, Any]:  # fmt: skip
    """Fields of TrainOptions from the options of the command line. Raises InputError where one means nothing."""
    from kernelwright.agent.command_line.arguments import choose_device
    from kernelwright.errors import InputError
    from kernelwright.rl.credit.formula import find_formula
    from kernelwright.rl.credit.turn_credit import Baseline
    from kernelwright.rl.training.sft.presets import read_settings

    if baseline not in list(Baseline):
        raise InputError(f"--baseline {baseline!r}: choose {', '.join(Baseline)}")
    if reward != "auto":
        find_formula(reward)
    if lora and adapter is not None:
        raise InputError("--adapter goes on with an adapter that is there, --lora begins a new one: give one of them")
    return {
        "policy": policy, "adapter": adapter, "output": output, "reward": reward, "gamma": gamma,
        "baseline": Baseline(baseline),
        "max_steps": max_steps, "max_minutes": max_minutes, "lora": lora, "settings": read_settings(settings or []),
        "device": choose_device(device),
        "seed": seed, "storage": parse_storage(storage),
    }  # fmt: skip


def parse_storage(name: str) -> Any:
    """Raises InputError."""
    from kernelwright.errors import InputError
    from kernelwright.rl.training.options import Storage

    if name not in list(Storage):
        raise InputError(f"--storage {name!r}: choose {', '.join(Storage)}")
    return Storage(name)
