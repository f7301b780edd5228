"""What the compiler does not draft, said by the operator's name and the line of the problem."""

from __future__ import annotations

import traceback

PROBLEM = "<problem>"
"""The file name under which a problem's text is compiled, so that its frames are found in a traceback."""

DEPENDS_ON_DATA = (
    "DataDependentOutputException",
    "GuardOnDataDependentSymNode",
    "DynamicOutputShapeException",
    "UserError",
)
"""Exceptions of torch that mean: Python needs a value of a tensor to go on."""


class Refused(Exception):
    """There is no draft. The message is one line."""

    def __init__(self, message: str, operator: str = "") -> None:
        """operator: whose line the message lacks, such as `scatter_add`; empty where there is none."""
        super().__init__(message)
        self.operator = operator


def line_of(error: BaseException, source: str) -> str:
    """`line 12 (y = x[x > 0])`: the deepest line of the problem that the error came through; empty where there is
    none.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == PROBLEM]
    if not frames or frames[-1].lineno is None:
        return ""
    return line_text(source, frames[-1].lineno)


def line_text(source: str, number: int) -> str:
    """`line 12 (y = x[x > 0])`."""
    lines = source.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"line {number} ({text[:100]})"


def reason_of(error: BaseException, source: str) -> str:
    """One line for a person: what could not be drafted, and where."""
    where = line_of(error, source)
    at = f" at {where}" if where else ""
    if isinstance(error, Refused):
        return f"{error}{at}"
    names = [type(e).__name__ for e in (error, error.__cause__, error.__context__) if e is not None]
    if any(name.startswith(DEPENDS_ON_DATA) for name in names):
        return f"what forward does depends on the values of a tensor{at}"
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text[:300]}{at}"
