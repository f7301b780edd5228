"""Rows that hold a kernel and nothing that launches it: their labels are found with a signature that is assumed from
the kernel's text, and say so.

True means that every kernel compiles with one of the signatures that were tried. False is said only where no signature
can help: the text is not Python, or a name is defined nowhere. Anything else is no label: a kernel may fail for the
signature that was assumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.rl.data.rows import Kind, Row
from kernelwright.tools.markdown.fenced_code import extract_code
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.source import MAX_SOURCE_CHARACTERS, kernels

if TYPE_CHECKING:
    from kernelwright.tools.pipeline import Evaluator

MAX_ROW_SECONDS = 30.0
"""Seconds for one row with all its kernels and targets."""
_JIT = re.compile(r"^@(?:\w+\.)?jit\b", re.MULTILINE)
_CODE = re.compile(r"\s|import \w|from [\w.]+ import\b|def \w|class \w|@\w|#|\w+ ?= ?\S|[\])}]")
"""Beginnings of a line of Python code."""
_HOLE = re.compile(
    r"(?:<\|?fim_prefix\|?>|<PRE>)(?P<prefix>.*?)"
    r"(?:<\|?fim_suffix\|?>|<SUF>)(?P<suffix>.*?)(?:<\|?fim_middle\|?>|<MID>)",
    re.DOTALL,
)


def launchless_program(row: Row) -> str:
    """The module with the row's kernels; "" where there is none, or where it is not known what surrounds them."""
    if len(row.prompt) + len(row.completion) > MAX_SOURCE_CHARACTERS:
        return ""
    text = _filled(row) if row.kind is Kind.FIM else extract_code(row.completion)
    if kernels(text):
        return text
    return text if row.kind is not Kind.FIM and _JIT.search(text) and _surely_broken(text) else ""


def label_launchless(row: Row, targets: Sequence[str], evaluator: Evaluator) -> Row:
    """The row with its labels, or as it was. Raises InfrastructureError."""
    found = evaluator.compile_launchless(launchless_program(row), targets, MAX_ROW_SECONDS)
    if row.kind is Kind.FIM and False in found.compiled.values():
        return row  # what it lacks may stand outside of the piece that was quoted
    if not found.compiled:
        return row
    told = dict.fromkeys(text for text in (row.assumed, found.assumed) if text)
    return row.with_(compile=row.compile | found.compiled, assumed="; ".join(told))


def _filled(row: Row) -> str:
    """A prompt with its hole filled; without marks of a hole the completion goes on after the prompt."""
    if hole := _HOLE.search(row.prompt):
        return hole["prefix"] + row.completion + hole["suffix"]
    return row.prompt + row.completion


def _surely_broken(text: str) -> bool:
    """Whether it is code that is not Python, and not code between sentences."""
    try:
        parse_module(text)
    except SyntaxError as error:
        lines = text.splitlines()
        first = next((line for line in lines if line.strip()), "")
        line = lines[min(error.lineno or 1, len(lines)) - 1]
        return bool(_CODE.match(first) and _CODE.match(line))
    except (ValueError, RecursionError, MemoryError):
        pass
    return False
