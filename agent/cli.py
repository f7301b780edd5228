"""The command `agent`: lists its commands, and ends each with an exit status and at most one line
on stderr.

Each command is a function of a module in `agent/command_line/`, listed in COMMANDS. Such a module
imports nothing heavy at its top, so that `agent --help` stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from kernelwright.agent.command_line.batch import batch
from kernelwright.agent.command_line.check import check
from kernelwright.agent.command_line.doctor import doctor, version
from kernelwright.agent.command_line.machine import machine
from kernelwright.agent.command_line.mcp import mcp
from kernelwright.agent.command_line.optimize import optimize
from kernelwright.agent.command_line.policies import policies
from kernelwright.agent.command_line.problems import problems
from kernelwright.agent.command_line.records.compare import compare
from kernelwright.agent.command_line.records.db import db
from kernelwright.agent.command_line.records.export import export
from kernelwright.agent.command_line.records.inspect import inspect
from kernelwright.agent.command_line.records.recheck import recheck
from kernelwright.agent.command_line.records.replay import replay
from kernelwright.agent.command_line.records.report import report
from kernelwright.agent.command_line.serve import serve
from kernelwright.agent.command_line.solve import solve
from kernelwright.agent.command_line.tune import tune
from kernelwright.agent.runtime.command_class import RenamingCommand

COMMANDS: tuple[Callable[..., Any], ...] = (
    solve,
    batch,
    check,
    tune,
    optimize,
    replay,
    recheck,
    inspect,
    compare,
    report,
    export,
    problems,
    policies,
    db,
    mcp,
    doctor,
    machine,
    serve,
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
    app.command(command.__name__, cls=RenamingCommand)(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits.

    The status is 0 when done (for `check`: correct), 1 for incorrect, 2 for bad input, 3 for this
    machine's trouble, 130 when interrupted.
    """
    from kernelwright.agent.runtime.errors import run

    run(app, "agent", sys.argv[1:] if arguments is None else arguments)
