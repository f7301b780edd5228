"""Defines `agent doctor` and `agent version`, which describe this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="The facts and the troubles as one JSON object.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")
    ] = False,
) -> None:
    """Show the abilities of this machine, its faults, and their repair."""
    import json

    from kernelwright.agent.runtime.doctor import Severity, diagnose
    from kernelwright.tools.hardware.machine_info import read_machine

    machine = read_machine()
    troubles = diagnose(machine)
    if as_json:
        facts = {
            "machine": machine.model_dump(mode="json"),
            "troubles": [t.model_dump(mode="json") for t in troubles],
        }
        typer.echo(json.dumps(facts, indent=2))
    else:
        from kernelwright.agent.viewing.show.machine import machine_view
        from kernelwright.agent.viewing.show.progress import console

        console().print(machine_view(machine, troubles))
    raise typer.Exit(3 if any(t.severity is Severity.ERROR for t in troubles) else 0)


def version() -> None:
    """Print the versions behind a verdict."""
    import platform

    from kernelwright.tools.hardware.machine_info import version as installed

    for name in ("kernelwright", "torch", "triton"):
        typer.echo(f"{name} {installed(name) or 'not installed'}")
    typer.echo(f"python {platform.python_version()}")
