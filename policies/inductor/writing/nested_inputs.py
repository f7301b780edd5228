"""Names for the tensors that forward is given inside of an argument (`scales['left']`, `rest[0]` of `*rest`): a tuple
takes no contiguous one in their place, and a list is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from kernelwright.policies.inductor.tracing.problem_text import readable


def is_mentioned(path: str, text: str) -> bool:
    """Whether a text of Python reads what lies at a path."""
    return _pattern(path).search(text) is not None


def names_of_nested(paths: Sequence[str], used_names: Collection[str], text: str) -> dict[str, str]:
    """A name for each path that is none itself: not one of `taken`, and no word of the text."""
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
