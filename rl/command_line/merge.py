"""Defines `rl merge`, which merges a LoRA adapter into its base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.rl.command_line.options.shared import AsJson, Debug, StorageName
from kernelwright.rl.command_line.options.training import parse_storage

Base = Annotated[str, typer.Option("--policy", help="The base: transformers:DIR, or a hub name.")]
AdapterFolder = Annotated[str, typer.Option("--adapter", help="The folder of its LoRA adapter.")]
Output = Annotated[Path, typer.Option("--out", help="The folder of the new policy.")]


def merge(
    policy: Base, adapter: AdapterFolder, output: Output = Path("merged"), storage: StorageName = "bf16",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Write a base with its LoRA adapter as one model, for engines without adapters."""
    from kernelwright.rl.training.publishing import merge_adapter

    merged = merge_adapter(policy, adapter, output, parse_storage(storage))
    if as_json:
        typer.echo(merged.model_dump_json(indent=2))
        return
    typer.echo(
        f"{merged.output}: {merged.parameters:,} weights, {merged.base} with {merged.adapter}"
    )
    typer.echo(f"next: rl evaluate --policy transformers:{merged.output} --suite synth:composition")
