"""Defines `agent machine`, which prints the states of a run and its transitions."""

from __future__ import annotations

from typing import Annotated

import typer

Whole = Annotated[
    bool, typer.Option("--all", help="Also the ways that only an unusual search or reply takes.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def machine(whole: Whole = False, debug: Debug = False) -> None:
    """Print the state machine as a Mermaid diagram."""
    from kernelwright.agent.loop.machine import mermaid

    typer.echo(mermaid(whole))
