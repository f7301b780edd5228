"""The command `rl`: collects the commands and handles their exit. Without further logic: each
command is a module of `rl/command_line/`.

A module with a function of its own name is a command; a module with a `typer.Typer` named `app`
is a group of commands. Neither has heavy imports at the top.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import typer

import kernelwright.rl.command_line
from kernelwright.agent.runtime.command_class import WrappingCommand


def build() -> typer.Typer:
    """Returns the command line with a command for each module of `rl/command_line/`."""
    app = typer.Typer(
        name="rl",
        help="Corpora, fine-tuning and GRPO: trains the policy on what the agent logged.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for info in pkgutil.iter_modules(kernelwright.rl.command_line.__path__):
        if info.ispkg:
            continue
        module = importlib.import_module(f"kernelwright.rl.command_line.{info.name}")
        group = getattr(module, "app", None)
        if group is not None:
            app.add_typer(group, name=info.name)
        else:
            app.command(info.name, cls=WrappingCommand)(getattr(module, info.name))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 done, 2 bad input, 3 this machine's trouble, 130 interrupted."""
    import logging

    from kernelwright.agent.runtime.command_class import RENAMED_IN_RL, with_current_names
    from kernelwright.agent.runtime.errors import run

    # It warns of a quicker kernel that it would have to download.
    logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = " ".join(words[: 2 if words[:1] == ["data"] else 1])
    run(build(), "rl", with_current_names(words, RENAMED_IN_RL.get(command, {})))
