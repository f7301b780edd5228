"""Comments at the top of a kernel file, in lines that people can read."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

MAX_COLUMNS = 120
VALUE_COLUMN = 13
"""The column at which the value of a line begins; with a kind of fact before it, it begins after that."""


def wrap_comments(header: Sequence[str]) -> str:
    """Returns the comments in lines of at most 120 columns; what does not fit in one goes on under its value."""
    return "".join(f"{line}\n" for entry in header for line in _wrapped(entry))


def _wrapped(entry: str) -> list[str]:
    kind = re.match(r"# contract +\S+ +", entry)
    indent = "#".ljust(kind.end() if kind else VALUE_COLUMN)
    return textwrap.wrap(
        entry, MAX_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
