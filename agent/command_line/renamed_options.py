"""Options that were renamed: the old name works for one release and says on stderr what the new one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

RENAMED_OPTIONS = {
    "solve": {"--output": "--out", "--samples": "--width"},
    "replay": {"--output": "--out"},
}
"""By command of `agent`: the old name and the new one. To be removed with version 0.2."""
RENAMED_IN_RL = {
    "train": {"--output": "--out", "--prompts": "--problems-per-step"},
    "loop": {"--output": "--out", "--prompts": "--problems-per-step", "--samples": "--held-out-samples"},
    "sft": {"--output": "--out", "--weights": "--storage"},
    "average": {"--output": "--out"},
    "evaluate": {"--output": "--out", "--n": "--limit"},
    "tokenizer": {"--output": "--out", "--size": "--vocabulary"},
    "rewards": {"--formula": "--reward"},
    "data mistakes": {"--device": "--policy-device"},
}
"""The same of `rl`."""


class RenamingCommand(TyperCommand):
    """A command that also takes the old names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replaces old names before `--` with the new ones."""
        return list(super().parse_args(ctx, with_current_names(args, RENAMED_OPTIONS.get(self.name or "", {}))))


def with_current_names(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Returns the arguments with each renamed option before `--` under its new name; stderr is told of each."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    return [*(_current_name(word, renamed) for word in arguments[:end]), *arguments[end:]]


def _current_name(word: str, renamed: Mapping[str, str]) -> str:
    option, equals, value = word.partition("=")
    if option not in renamed:
        return word
    typer.echo(f"{option} is now called {renamed[option]}: the old name goes with the next release", err=True)
    return f"{renamed[option]}{equals}{value}"
