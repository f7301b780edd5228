"""Defines `rl push`, which uploads a trained policy to a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.rl.command_line.options.shared import AsJson, Debug

Folder = Annotated[Path, typer.Argument(help="A folder that rl sft, rl train or rl merge wrote.")]
Repository = Annotated[str, typer.Argument(help="OWNER/NAME on the hub; made where it is missing.")]
Private = Annotated[
    bool, typer.Option("--private/--public", help="Who may see a repository that is made.")
]


def push(
    folder: Folder, repository: Repository, private: Private = True,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Upload a policy with its card to a model hub, by huggingface_hub's own login.

    Weights, tokenizer, card and figures are sent; checkpoints and logs stay.
    """
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.rl.training.publishing import push_policy

    with progress(as_json) as say:
        pushed = push_policy(folder, repository, private=private, say=say)
    if as_json:
        typer.echo(pushed.model_dump_json(indent=2))
        return
    typer.echo(f"{pushed.url}: {len(pushed.files)} files, commit {pushed.commit[:12]}")
