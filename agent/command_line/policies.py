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
    """Show a model folder's card (base, data, training, revision), and the forms of --policy."""
    from kernelwright.errors import InputError
    from kernelwright.policies.model_identity import weights_revision
    from kernelwright.policies.policy_card import read_card
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    folder_of_name = {f"transformers:{folder}": folder for folder in folders or ()} or {
        "embedded": EMBEDDED_WEIGHTS
    }
    cards = []
    for name, folder in folder_of_name.items():
        revision = weights_revision(folder)
        if revision is None:
            hint = "holds no weights (*.safetensors, *.bin)"
            if not folder.is_dir():
                hint = "is not a folder"
            raise InputError(f"{folder} {hint}: give the folder that `rl sft` or `rl train` wrote")
        cards.append((name, revision, read_card(folder)))
    if as_json:
        rows = []
        for name, revision, card in cards:
            fields = card.model_dump(mode="json", exclude_unset=True)
            rows.append({"policy": name, "revision": revision, **fields})
        typer.echo(json.dumps(rows, indent=2))
        return
    from kernelwright.agent.viewing.show.policies import policies_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(policies_view(cards))
