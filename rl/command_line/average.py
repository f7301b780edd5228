"""Defines `rl average`, which averages the weights of several policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.rl.command_line.options.shared import AsJson, Debug, StorageName
from kernelwright.rl.command_line.options.training import parse_storage

Policies = Annotated[
    list[str],
    typer.Argument(
        help="Two policies or more, trained from the same one: transformers:DIR, or embedded."
    ),
]
Output = Annotated[Path, typer.Option("--out", help="The folder of the new policy.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also where their notes name no policy that both come from.")
]


def average(
    policies: Policies, output: Output = Path("averaged"), storage: StorageName = "bf16", force: Force = False,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Average the weights of several policies: the mean of trainings with different seeds can be
    better than each.

    Measure it with rl evaluate.
    """
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.rl.training.averaging import average_policies as mean_of

    with progress(as_json) as say:
        done = mean_of(policies, output, storage=parse_storage(storage), force=force, say=say)
    if as_json:
        typer.echo(done.model_dump_json(indent=2))
        return
    distances = ", ".join(f"{distance:.3g}" for distance in done.distances)
    typer.echo(
        f"{done.output}: the mean of {len(done.policies)} policies, {distances} away from it"
    )
    typer.echo(f"next: rl evaluate --policy transformers:{done.output} --suite synth:composition")
