"""Finds the position of a compilation error in the candidate's source, and the relevant part of
Triton's message."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.tools.report import SourceLine


def chain(error: BaseException | None) -> list[BaseException]:
    """Returns the exception and its causes, outermost first."""
    errors: list[BaseException] = []
    while error is not None and error not in errors and len(errors) < 12:
        errors.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return errors


def located(error: BaseException) -> list[Any]:
    """Returns the CompilationErrors in the chain, innermost first, each with a function's source
    and a node."""
    return [
        e
        for e in chain(error)[::-1]
        if hasattr(getattr(e, "node", None), "lineno") and getattr(e, "src", None)
    ]


def compile_where(error: BaseException, path: str) -> SourceLine | None:
    """Returns the innermost position in the candidate's file; an error inside Triton's functions is
    placed at their call."""
    lines = Path(path).read_text("utf-8", "replace").splitlines()
    for inner in located(error):
        start, indent = _start_of(str(inner.src), lines)
        if start is not None:
            number = start + inner.node.lineno
            return at(lines, number, inner.node.col_offset + indent)
    return None


def at(lines: Sequence[str], number: int, column: int | None) -> SourceLine:
    """Returns a source line. `number` counts from 1, `column` from 0."""
    text = lines[number - 1][:400] if 0 < number <= len(lines) else ""
    return SourceLine(line=number, column=column, text=text)


def _start_of(function: str, lines: Sequence[str]) -> tuple[int | None, int]:
    """Returns the index of the line at which a dedented function starts in the file, and its
    indentation there."""
    function_lines = [line.rstrip() for line in function.rstrip().splitlines()]
    for index, line in enumerate(lines):
        if line.strip() == function_lines[0].strip():
            block = textwrap.dedent(
                "\n".join(lines[index : index + len(function_lines)])
            ).splitlines()
            if [b.rstrip() for b in block] == function_lines:
                return index, len(line) - len(line.lstrip())
    return None, 0


def compile_message(error: BaseException) -> str:
    """Returns the innermost message, without Triton's excerpt of the source."""
    for inner in located(error):
        if text := (getattr(inner, "error_message", None) or "").strip():
            return text
    deepest = chain(error)[-1]
    return f"{type(deepest).__name__}: {deepest}".strip()
