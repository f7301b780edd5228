"""Finds the Python programs of a row, for comparison with benchmarks.

Programs are found by syntax alone, in code fences or between sentences. A model described in
words, written in another language or cut in two is not found: such rows are counted as not
compared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from kernelwright.rl.data.rows import Row
from kernelwright.tools.parsing import parse_module

MAX_PARSES = 64
"""Largest number of parses of a text: a long file of almost-Python must not take minutes."""
_START = re.compile(r"([ \t]*)(?:import \w|from [\w.]+ import\b|class \w+\s*[(:]|def \w+\s*\(|@\w)")


def programs_of(row: Row) -> tuple[str, ...]:
    """Returns the reference if it holds a model, else every program in the row's texts."""
    if holds_model(row.reference):
        return (row.reference,)
    programs: list[str] = []
    for text in (row.reference, row.prompt, row.completion):
        programs += programs_in(text)
    return tuple(programs)


@lru_cache(maxsize=65536)
def holds_model(program: str) -> bool:
    """Returns whether a program defines a class with a forward: only models are compared by graph
    and tree.
    """
    try:
        tree = parse_module(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return any(any(map(_is_forward, node.body)) for node in classes)


def _is_forward(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "forward"


def programs_in(text: str) -> Iterator[str]:
    """Yields maximal runs of lines that parse, each starting with a line only Python begins with."""
    lines = text.splitlines()
    first, parses_left = 0, MAX_PARSES
    while first < len(lines) and parses_left > 0:
        # Only lines that begin like Python are worth a parse.
        start = _START.match(lines[first])
        length, tries = 0, 0
        if start:
            unindented = _indented(lines[first:], start[1])
            length, tries = _longest(unindented)
            if length:
                yield "\n".join(unindented[:length]) + "\n"
        first += max(length, 1)
        parses_left -= tries


def _indented(lines: list[str], indent: str) -> list[str]:
    """Returns the lines up to the first with less indentation, without the indent."""
    unindented = []
    for line in lines:
        if line.strip() and not line.startswith(indent):
            break
        unindented.append(line[len(indent) :])
    return unindented


def _longest(lines: list[str]) -> tuple[int, int]:
    """Returns the number of leading lines that parse together, and the number of attempts. Each
    syntax error cuts off the lines after it.
    """
    for tries in range(1, MAX_PARSES):
        try:
            parse_module("\n".join(lines))
        except SyntaxError as error:
            lines = lines[: min(max(error.lineno or 1, 1), len(lines)) - 1]
        except (ValueError, RecursionError, MemoryError):
            return 0, tries
        else:
            return len(lines), tries
    return 0, MAX_PARSES
