"""The command `agent`: names the commands and ends them well. No logic: each command is a module of `agent.commands`.

To add a command: write `agent/commands/NAME.py` with one function, and name it in COMMANDS. Nothing heavy at the top of that module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from agent.commands.batch import batch
from agent.commands.check import check
from agent.commands.compare import compare
from agent.commands.db import db
from agent.commands.doctor import doctor
from agent.commands.export import export
from agent.commands.inspect import inspect
from agent.commands.machine import machine
from agent.commands.problems import problems
from agent.commands.replay import replay
from agent.commands.report import report
from agent.commands.solve import solve
from agent.commands.version import version

COMMANDS: tuple[Callable[..., Any], ...] = (
    solve,
    batch,
    check,
    replay,
    inspect,
    compare,
    report,
    export,
    problems,
    db,
    doctor,
    machine,
    version,
)

app = typer.Typer(
    name="agent",
    help="Writes Triton GPU kernels, and says what is true of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command(command.__name__)(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits: 0 done (for `check`: correct), 1 incorrect, 2 bad input, 3 this machine's trouble, 130 interrupted."""
    from agent.exits import run

    run(app, "agent", sys.argv[1:] if arguments is None else arguments)
