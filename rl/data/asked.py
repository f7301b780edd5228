"""What a user of `rl data` asked for, checked. Everything raises InputError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.exits import InputError
from rl.data.rows import Split

if TYPE_CHECKING:
    from rl.data.importing.kinds import Form
    from tools.problem import Problem


def split_asked(text: str) -> Split:
    """train, held_out_depth ...; `depth` and `held-out-depth` do as well."""
    plain = text.lower().replace("-", "_")
    for split in Split:
        if plain in (split.value, split.value.removeprefix("held_out_")):
            return split
    raise InputError(f"there is no split {text}: it is one of {', '.join(Split)}")


def target_asked(text: str) -> str:
    """The target's own name."""
    from tools.targets import parse_target

    try:
        return parse_target(text).name
    except ValueError as error:
        raise InputError(str(error)) from error


def form_asked(text: str) -> Form:
    """csv, inductor, tree, kernelbook or jsonl."""
    from rl.data.importing.kinds import Form

    try:
        return Form(text.lower())
    except ValueError as error:
        raise InputError(f"there is no form {text}: it is one of {', '.join(Form)}") from error


def targets_asked(texts: list[str]) -> tuple[str, ...]:
    """One by one, or with commas: `sm_80,sm_90`."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(target_asked(part) for part in parts if part))


def problems_asked(names: list[str]) -> list[Problem]:
    """Of `catalogue`, folders, files, and `synth:N`: the first N training tasks of seed 0."""
    from agent.suite_choice import choose_problems
    from rl.data.synth.tasks import tasks

    found: list[Problem] = []
    for name in names:
        kind, _, count = name.partition(":")
        if kind == "synth":
            if not count.isdigit() or not int(count):
                raise InputError(f"{name}: write synth:N, such as synth:200")
            found += [task.problem for task in tasks(Split.TRAIN, int(count))]
        else:
            found += choose_problems([name])
    return found
