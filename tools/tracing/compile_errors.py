"""Where in the candidate's own text a compilation failed, and what of Triton's words says why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.tools.report import SourceLine


def chain(error: BaseException | None) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    found: list[BaseException] = []
    while error is not None and error not in found and len(found) < 12:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def located(error: BaseException) -> list[Any]:
    """The CompilationErrors in the chain, innermost first: each knows a function's text and a node in it."""
    return [
        e
        for e in chain(error)[::-1]
        if hasattr(getattr(e, "node", None), "lineno") and getattr(e, "src", None)
    ]


def compile_where(error: BaseException, path: str) -> SourceLine | None:
    """The innermost place that is in the candidate's file: errors inside Triton's own functions are placed at their
    call.
    """
    lines = Path(path).read_text("utf-8", "replace").splitlines()
    for inner in located(error):
        start, indent = _start_of(str(inner.src), lines)
        if start is not None:
            number = start + inner.node.lineno
            return at(lines, number, inner.node.col_offset + indent)
    return None


def at(lines: Sequence[str], number: int, column: int | None) -> SourceLine:
    """`number` from 1, `column` from 0."""
    text = lines[number - 1][:400] if 0 < number <= len(lines) else ""
    return SourceLine(line=number, column=column, text=text)


def _start_of(function: str, lines: Sequence[str]) -> tuple[int | None, int]:
    """Index of the line where the dedented text of a function begins in the file, and how far it is indented there."""
    wanted = [line.rstrip() for line in function.rstrip().splitlines()]
    for index, line in enumerate(lines):
        if line.strip() == wanted[0].strip():
            block = textwrap.dedent("\n".join(lines[index : index + len(wanted)])).splitlines()
            if [b.rstrip() for b in block] == wanted:
                return index, len(line) - len(line.lstrip())
    return None, 0


def compile_message(error: BaseException) -> str:
    """The innermost words, without the excerpt of the source that Triton puts before them."""
    for inner in located(error):
        if text := (getattr(inner, "error_message", None) or "").strip():
            return text
    deepest = chain(error)[-1]
    return f"{type(deepest).__name__}: {deepest}".strip()
