"""Refusals of the compiler, with the operator's name and the line of the problem."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

from kernelwright.source_lines import origin_of_line

PROBLEM = "<problem>"
"""File name of a problem's compiled text, to find its frames in a traceback."""

DEPENDS_ON_DATA = (
    "DataDependentOutputException",
    "GuardOnDataDependentSymNode",
    "DynamicOutputShapeException",
    "PendingUnbackedSymbolNotFound",
    "UserError",
)
"""Exceptions of torch raised if Python needs a tensor's value."""

DROPOUT_ADVICE = "call eval() on the module where the file builds it, or set p to 0"
"""The advice on a module whose dropout is active."""


class DraftRefused(Exception):
    """Raised if no draft can be made. The message is one line."""

    def __init__(self, message: str, operator: str = "", advice: str = "") -> None:
        """Stores the refusal.

        operator: name such as `scatter_add`, to find the line missing in the message; empty if
        there is none. advice: what
        the user can do, appended after the line.
        """
        super().__init__(message)
        self.operator, self.advice = operator, advice


def line_of(error: BaseException, source: str) -> str:
    """Returns the deepest line of the problem in an error's traceback, as `line 12 (y = x[x >
    0])`; empty without one.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == PROBLEM
    ]
    if not frames or frames[-1].lineno is None:
        return ""
    return line_text(source, frames[-1].lineno)


def line_text(source: str, number: int) -> str:
    """Returns a line of the problem as `line 12 (y = x[x > 0])`, with its number in the user's file."""
    lines = source.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"{origin_of_line(lines, number)} ({text[:100]})".strip()


def reason_of(error: BaseException, source: str) -> str:
    """Returns one line for the user with the unsupported construct and its location."""
    location = line_of(error, source)
    at = f" at {location}" if location else ""
    if isinstance(error, DraftRefused):
        message = next(
            iter(str(error).splitlines()), ""
        )  # an interpreter of graphs adds what it was executing
        return f"{message}{at}"
    if needs_values(error):
        return f"what forward does depends on the values of a tensor{at}"
    text = next(iter(str(error).strip().splitlines()), "")
    return (
        f"{type(error).__name__}: {text[:300]}{at}"
        if text
        else f"{type(error).__name__}{_place_of(error)}{at}"
    )


def needs_values(error: BaseException) -> bool:
    """Whether Python needed a value of a tensor to go on."""
    names = [type(e).__name__ for e in (error, error.__cause__, error.__context__) if e is not None]
    return any(name.startswith(DEPENDS_ON_DATA) for name in names)


def _place_of(error: BaseException) -> str:
    """` in splits (tiling_utils.py:271: assert a == b)`, for an error without a message."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return " without a word"
    deepest = frames[-1]
    return f" in {deepest.name} ({Path(deepest.filename).name}:{deepest.lineno}: {(deepest.line or '')[:100]})"


def operator_of(error: BaseException) -> str:
    """Returns the operator (`amin`) that torch was processing, from local variables of the
    error's frames; else "".
    """
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in list(frame.f_locals.values()):
            names = [name for name in _operators(value) if name]
            if names:
                return names[-1]
    return ""


def _operators(value: object) -> Iterable[str]:
    """Yields the operators of a graph node, or of Inductor's scheduled nodes, in graph order."""
    module = type(value).__module__
    if module == "torch.fx.node" and getattr(value, "op", "") == "call_function":
        parts = str(getattr(value, "target", "")).split(".")
        yield parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    elif module.startswith("torch._inductor"):
        snodes = getattr(value, "snodes", None)  # of a class it is a function
        for part in snodes if isinstance(snodes, list | tuple) and snodes else [value]:
            origins = (
                getattr(getattr(part, "node", None), "origins", None)
                or getattr(part, "origins", None)
                or ()
            )
            for node in sorted(origins if isinstance(origins, Iterable) else (), key=str):
                yield from _operators(node)
