"""Formats the comments at the top of a kernel file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

MAX_COLUMNS = 120
"""Maximum width of a comment line."""
VALUE_COLUMN = 13
"""Column of continuation lines; after a `# contract KIND` prefix, continuation lines are aligned
with the value.
"""


def wrap_comments(header: Sequence[str]) -> str:
    """Wraps comments at 120 columns; continuation lines are indented under the value."""
    return "".join(f"{line}\n" for entry in header for line in _wrapped(entry))


def _wrapped(entry: str) -> list[str]:
    kind = re.match(r"# contract +\S+ +", entry)
    indent = "#".ljust(kind.end() if kind else VALUE_COLUMN)
    return textwrap.wrap(
        entry, MAX_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
