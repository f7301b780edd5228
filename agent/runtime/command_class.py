"""The class of every command: its help is wrapped by the terminal, and renamed options keep their
old names for one release, with a note on stderr.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

RENAMED_OPTIONS = {
    "solve": {"--output": "--out", "--samples": "--width"},
    "replay": {"--output": "--out"},
}
"""New names of options by old names, by command of `agent`. To be removed with version 0.2."""
RENAMED_IN_RL = {
    "train": {"--output": "--out", "--prompts": "--problems-per-step"},
    "loop": {
        "--output": "--out",
        "--prompts": "--problems-per-step",
        "--samples": "--held-out-samples",
    },
    "sft": {"--output": "--out", "--weights": "--storage"},
    "average": {"--output": "--out"},
    "evaluate": {"--output": "--out", "--n": "--limit"},
    "tokenizer": {"--output": "--out", "--size": "--vocabulary"},
    "rewards": {"--formula": "--reward"},
    "data mistakes": {"--device": "--policy-device"},
}
"""New names of options by old names, by command of `rl`."""


USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""click's UsageError, of typer's own copy of click or of click itself: both are the base of
typer.BadParameter.
"""


class WrappingCommand(TyperCommand):
    """A command whose help is its docstring without the line ends of the source."""

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        super().__init__(*args, help=join_lines(help) if help else help, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Adds the command to a usage error if the parser leaves it out (an option without its
        value).
        """
        try:
            return list(super().parse_args(ctx, args))
        except USAGE_ERROR as error:
            error.ctx = error.ctx or ctx
            raise


class RenamingCommand(WrappingCommand):
    """A command that also takes the old names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replaces old names before `--` with the new names."""
        return super().parse_args(
            ctx, with_current_names(args, RENAMED_OPTIONS.get(self.name or "", {}))
        )


def join_lines(text: str) -> str:
    """Returns the text with one line for each paragraph; an empty line ends a paragraph."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def with_current_names(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Returns the arguments with each renamed option before `--` under its new name, with a note
    on stderr for each.
    """
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    return [*(_current_name(word, renamed) for word in arguments[:end]), *arguments[end:]]


def _current_name(word: str, renamed: Mapping[str, str]) -> str:
    option, equals, value = word.partition("=")
    if option not in renamed:
        return word
    typer.echo(
        f"{option} is now called {renamed[option]}: the next release removes the old name", err=True
    )
    return f"{renamed[option]}{equals}{value}"
