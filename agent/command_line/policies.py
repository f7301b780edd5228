"""Defines `agent policies`, which lists policies and shows a policy's card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

Folders = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders of models or adapters; the policy that ships where none is named.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The cards as a JSON list.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def policies(folders: Folders = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Say what a model's folder says about itself: base, data, training, revision; and which forms --policy takes."""
    from kernelwright.errors import InputError
    from kernelwright.policies.model_identity import weights_revision
    from kernelwright.policies.policy_card import read_card
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    named = {f"transformers:{folder}": folder for folder in folders or ()} or {
        "embedded": EMBEDDED_WEIGHTS
    }
    found = []
    for name, folder in named.items():
        revision = weights_revision(folder)
        if revision is None:
            hint = (
                "is not a folder"
                if not folder.is_dir()
                else "holds no weights (*.safetensors, *.bin)"
            )
            raise InputError(f"{folder} {hint}: give the folder that `rl sft` or `rl train` wrote")
        found.append((name, revision, read_card(folder)))
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"policy": n, "revision": r, **c.model_dump(mode="json", exclude_unset=True)}
                    for n, r, c in found
                ],
                indent=2,
            )
        )
        return
    from kernelwright.agent.viewing.show.policies import policies_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(policies_view(found))
