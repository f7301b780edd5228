"""Tells which line of a user's file a line of a problem's text comes from.

A text that is completed from a file says so in comments, as the output of the C preprocessor does:

    #line 17                 the next line is line 17 of the file, and the lines after it count on
    #line 12 "layers.py"     the next line is line 12 of another file
    #line 0                  the next lines stand in no file

Lines before the first comment have the file's numbers. Edits of a text keep each line where it is, or add comments.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import NamedTuple

_DIRECTIVE = re.compile(r'\s*#line (\d+)(?: "(.*)")?$')


class LineOrigin(NamedTuple):
    """A line of a file."""

    number: int
    """Counted from 1; 0 for a line that stands in no file."""
    file: str = ""
    """The name of the file; "" for the problem's own."""

    def __str__(self) -> str:
        """Returns `line 12 of layers.py`, `line 12` of the problem's own file; empty for a line of no file."""
        if not self.number:
            return ""
        return f"line {self.number} of {self.file}" if self.file else f"line {self.number}"

    @property
    def directive(self) -> str:
        """The comment that gives the next line this origin."""
        return f'#line {self.number} "{self.file}"' if self.file else f"#line {self.number}"


NO_FILE = LineOrigin(0)


def origin_of_line(text: str | Sequence[str], number: int) -> LineOrigin:
    """Returns the origin of a line of a text, which is counted from 1. text: whole, or as lines."""
    lines = text.splitlines() if isinstance(text, str) else text
    for distance, line in enumerate(reversed(lines[: number - 1])):
        directive = _DIRECTIVE.match(line) if "#line" in line else None
        if directive is None:
            continue
        first, file = int(directive[1]), directive[2] or ""
        return LineOrigin(first + distance, file) if first else NO_FILE
    return LineOrigin(number)


def place_in_text(text: str, function: str, number: int) -> str:
    """Returns ` in forward, line 12`: a function of a text, and the line of the user's file."""
    origin = str(origin_of_line(text, number))
    where = " when it is imported" if function == "<module>" else f" in {function}"
    return f"{where}, {origin}" if origin else where


def place_of_error(error: BaseException, text: str, file: str) -> str:
    """Returns the last function of a text that an error went through, with its line; empty without one.

    file: the name under which the text was compiled.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
    ]
    return place_in_text(text, frames[-1].name, frames[-1].lineno or 0) if frames else ""


def insert_lines(lines: list[str], at: int, new: Sequence[str]) -> None:
    """Inserts lines that stand in no file before the line with the index `at`; all others keep their origins."""
    following = [origin_of_line(lines, at + 1).directive] if at < len(lines) else []
    lines[at:at] = [NO_FILE.directive, *new, *following]


def without_directives(text: str) -> str:
    """Returns the text without the comments that tell origins, for readers who know no file."""
    if "#line" not in text:
        return text
    kept = [line for line in text.splitlines() if not _DIRECTIVE.match(line)]
    return "\n".join(kept) + "\n"
