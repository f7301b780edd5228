"""The command `rl`: names the commands and ends them well. No logic: each command is a module of `rl.commands`.

A module with a function of its own name is a command; one with a `typer.Typer` named `app` is a group of them. Nothing heavy at the top of either.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence

import typer

import rl.commands

INTERRUPTED = 130
"""What newer typers return for Ctrl-C, in silence; older ones raise Abort."""


def build() -> typer.Typer:
    """The command line, from what `rl/commands/` holds."""
    app = typer.Typer(
        name="rl",
        help="Corpora, fine-tuning and GRPO: trains the policy on what the agent logged.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for found in pkgutil.iter_modules(rl.commands.__path__):
        module = importlib.import_module(f"rl.commands.{found.name}")
        group = getattr(module, "app", None)
        if group is not None:
            app.add_typer(group, name=found.name)
        else:
            app.command(found.name)(getattr(module, found.name))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits: 0 done, 2 bad input, 3 this machine's trouble, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = build()(args=given, prog_name="rl", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in given:
            raise
        from agent.exits import Exit, explain, leave

        line, code = explain(error)
        print(f"rl: {' '.join(line.split())}", file=sys.stderr)
        if code is Exit.INTERRUPTED:
            leave(code)
    sys.exit(int(code or 0))
