"""`agent version`."""

from __future__ import annotations

import typer


def version() -> None:
    """Print the versions that a verdict depends on."""
    import platform

    from kernelwright.tools.hardware.machine_info import version as installed

    for name in ("kernelwright", "torch", "triton"):
        typer.echo(f"{name} {installed(name) or 'not installed'}")
    typer.echo(f"python {platform.python_version()}")
