"""A user's settings for a config of trl's: names and kinds are checked before anything is made, and what trl
refuses is one line.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kernelwright.errors import InputError

WARM_UP_SHARE = 0.1
"""Share of a training's optimizer steps in which the learning rate rises, unless the user sets it."""


def warm_up_steps(max_steps: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """`warmup_steps` for a training of `max_steps` optimizer steps, rounded down; empty where `given` sets a warm-up.

    The first step of a warm-up has a learning rate of 0, so a training of fewer than ten steps has none.
    """
    if given.keys() & {"warmup_steps", "warmup_ratio"}:
        return {}
    return {"warmup_steps": int(WARM_UP_SHARE * max_steps)}


def check_settings(kind: Any, given: Mapping[str, Any]) -> None:
    """`kind`: a dataclass.

    Raises InputError for a name that it has not, and for text where a number, or true or false, is wanted.
    """
    known = {field.name: field.default for field in fields(kind) if field.init}
    for name, value in given.items():
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, known, 3)) or "see trl's documentation"
            raise InputError(f"{kind.__name__} has no field {name!r}: near ones are {near}")
        if isinstance(value, str) and isinstance(known[name], int | float):
            wanted = "true or false" if isinstance(known[name], bool) else "a number"
            raise InputError(f"{name}={value}: expected {wanted}")


def make_config(kind: Any, own: Mapping[str, Any]) -> Any:
    """Returns the config. Raises InputError where it refuses a value."""
    try:
        with warnings.catch_warnings():
            # Newer transformers call gradient_checkpointing otherwise; both names work with all that we support.
            warnings.simplefilter("ignore", FutureWarning)
            return kind(**own)
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(f"{kind.__name__} refuses these settings: {str(error).splitlines()[0]}") from error
