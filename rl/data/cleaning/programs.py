"""The Python programs of a row: what can be held against a benchmark's.

Found by syntax alone, in code fences or between sentences. A model that is told in words, written in another language
or cut in two is not found: such rows are counted as not compared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from kernelwright.rl.data.rows import Row
from kernelwright.tools.parsing import parse_module

MAX_PARSES = 64
"""Tries for one text: a long file that is nearly Python must not take minutes."""
_START = re.compile(r"([ \t]*)(?:import \w|from [\w.]+ import\b|class \w+\s*[(:]|def \w+\s*\(|@\w)")


def programs_of(row: Row) -> tuple[str, ...]:
    """The reference where it holds a model, else every program in the row's texts."""
    if holds_model(row.reference):
        return (row.reference,)
    return tuple(
        program
        for text in (row.reference, row.prompt, row.completion)
        for program in programs_in(text)
    )


@lru_cache(maxsize=65536)
def holds_model(program: str) -> bool:
    """Whether there is a class with a forward: only models are compared by graph and tree."""
    try:
        tree = parse_module(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return any(
        isinstance(n, ast.FunctionDef) and n.name == "forward" for one in classes for n in one.body
    )


def programs_in(text: str) -> Iterator[str]:
    """Runs of lines that parse, each as long as it can be, from a line that only Python begins with."""
    lines = text.splitlines()
    first, left = 0, MAX_PARSES
    while first < len(lines) and left > 0:
        start = _START.match(lines[first])
        taken, tries = _longest(_indented(lines[first:], start[1])) if start else (0, 0)
        if start and taken:
            yield "\n".join(line[len(start[1]) :] for line in lines[first : first + taken]) + "\n"
        first, left = first + max(taken, 1), left - tries


def _indented(lines: list[str], indent: str) -> list[str]:
    """The lines up to the first that is less indented, without the indent."""
    end = next(
        (i for i, line in enumerate(lines) if line.strip() and not line.startswith(indent)),
        len(lines),
    )
    return [line[len(indent) :] for line in lines[:end]]


def _longest(lines: list[str]) -> tuple[int, int]:
    """Returns the number of lines that parse together, and the number of attempts. Each error cuts off the lines that
    follow it.
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
