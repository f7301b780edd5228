"""Options used in some modes of a command only. In another mode they are refused, not ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import typer

from kernelwright.errors import InputError


class CommandParameter(Protocol):
    """An argument or an option, of click or of typer's own copy of click."""

    @property
    def name(self) -> str | None:
        """Name of the function's parameter."""

    @property
    def opts(self) -> list[str]:
        """Names on the command line, such as `--out` and `-o`."""


def names_of(*groups: type[Any]) -> frozenset[str]:
    """Returns the parameters of groups of options, by which a command declares the options of a
    mode.
    """
    return frozenset(field.name for group in groups for field in fields(group))


class Modes:
    """Modes of a command with their parameters. A parameter without a mode belongs to every mode."""

    def __init__(self, parameters: Mapping[str, Iterable[str]]) -> None:
        """parameters: keyed by the words for a mode on the command line, such as `--online`."""
        self.parameters = {mode: frozenset(names) for mode, names in parameters.items()}

    def refuse_unused(self, context: typer.Context, mode: str) -> None:
        """Raises InputError with the names of typed options unused in `mode`."""
        everywhere = frozenset().union(*self.parameters.values())
        foreign = everywhere - self.parameters[mode]
        unused = []
        for parameter in context.command.params:
            if parameter.name in foreign and _was_typed(context, parameter.name or ""):
                unused.append(parameter)
        if not unused:
            return
        options = " and ".join(_word_of(parameter) for parameter in unused)
        raise InputError(f"{mode} does not use {options}{self._owner_of(unused)}: leave that out")

    def _owner_of(self, parameters: Sequence[CommandParameter]) -> str:
        """Returns the names of the modes with all these parameters; empty if there is none."""
        names = {parameter.name for parameter in parameters}
        modes = [mode for mode, used in self.parameters.items() if names <= used]
        if not modes or modes[0] in parameters[0].opts:
            return ""
        return f", only {modes[0]} does" if len(modes) == 1 else f", {' and '.join(modes)} do"


def _was_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _word_of(parameter: CommandParameter) -> str:
    """Returns the option's long name, or the argument's name in capitals."""
    long_names = [word for word in parameter.opts if word.startswith("--")]
    return long_names[0] if long_names else str(parameter.name).upper()
