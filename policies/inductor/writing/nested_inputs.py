"""Names for tensors nested in forward's arguments (`scales['left']`, `rest[0]` of `*rest`).

The contiguous copy of such a tensor needs a name: a tuple is immutable, and a list belongs to the
caller.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from kernelwright.policies.inductor.tracing.problem_text import readable


def is_mentioned(path: str, text: str) -> bool:
    """Returns whether Python text reads the value at a path."""
    return _pattern(path).search(text) is not None


def names_of_nested(paths: Sequence[str], used_names: Collection[str], text: str) -> dict[str, str]:
    """Returns a name for each path that is no identifier, avoiding used names and words of the
    text.
    """
    used = {*used_names, *re.findall(r"\w+", text)}
    names: dict[str, str] = {}
    for path in paths:
        if path.isidentifier():
            continue
        name, number = readable(path), 2
        while name in used:
            name, number = f"{readable(path)}_{number}", number + 1
        used.add(name)
        names[path] = name
    return names


def rename_paths(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The lines with the names in the place of their paths."""
    for path, name in names.items():
        lines = [_pattern(path).sub(name, line) for line in lines]
    return list(lines)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(path)}(?!\w)")
