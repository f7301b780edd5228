"""What a user of `rl data` asked for, checked. Everything raises InputError."""

from __future__ import annotations

from agent.exits import InputError
from rl.data.rows import Split


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
