"""`ast.parse` for foreign texts, from many threads.

CPython 3.11 shares the recursion depth of a syntax tree's construction between threads, and
sometimes raises SystemError for a valid text (seen with judges side by side: "AST constructor
recursion depth mismatch"). A second attempt parses it. Python's warnings about such a text (`1if
x`, an invalid escape) are suppressed.
"""

from __future__ import annotations

import ast
import functools
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

MAX_ATTEMPTS = 5
MAX_TEXT_CHARACTERS = 1 << 20
"""Characters: a million short lines take a minute and gigabytes to parse and to hash."""
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="<unknown>")


def parse_module(text: str) -> ast.Module:
    """Parses a module. Raises the errors of `ast.parse`, and ValueError for a text that is too
    long.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(
            f"a text of {len(text):,} characters: at most {MAX_TEXT_CHARACTERS:,} are parsed"
        )
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


Numbers = tuple[tuple[int, int], ...]
"""Marks in a template, and the numbers which replace them."""
MAX_REMEMBERED_TEXTS = 1024
_filled: OrderedDict[str, tuple[str, Numbers]] = OrderedDict()
"""Texts made from templates."""
_filling = threading.Lock()
_TAKE_NUMBERS = (ast.Assign, ast.AnnAssign, ast.Call, ast.keyword, ast.Return)
"""Nodes in which an integer may appear so that the compiler computes nothing with it."""


def note_template(text: str, template: str, numbers: Numbers) -> None:
    """Registers a text as a template with numbers in place of its integer marks."""
    with _filling:
        _filled[text] = template, numbers
        while len(_filled) > MAX_REMEMBERED_TEXTS:
            _filled.popitem(last=False)


def template_of(text: str) -> str:
    """Returns the template from which a text was made, or the text itself."""
    return _filled.get(text, (text, ()))[0]


@functools.lru_cache(maxsize=64)
def code_of(source: str, file: str) -> types.CodeType:
    """Compiles a problem's source under a file name, cached: a verdict runs it at dozens of sizes.

    Raises SyntaxError.
    """
    template, numbers = _filled.get(source, (source, ()))
    code = (
        _code_of_template(template, file, tuple(mark for mark, _ in numbers)) if numbers else None
    )
    return compile(source, file, "exec") if code is None else _filled_in(code, dict(numbers))


@functools.lru_cache(maxsize=64)
def _code_of_template(template: str, file: str, marks: tuple[int, ...]) -> types.CodeType | None:
    """Compiles the template; None if the compiler may compute with a mark, which could not be
    found again.
    """
    tree = parse_module(template)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    marked = set(marks)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in marked:
            within: ast.AST = parents[id(node)]
            while isinstance(within, ast.Tuple | ast.List):
                within = parents[id(within)]
            if not isinstance(within, _TAKE_NUMBERS):
                return None
    return compile(template, file, "exec")


def _filled_in(constant: object, numbers: Mapping[int, int]) -> Any:
    """Returns the code, tuple or constant with the marks replaced by the numbers."""
    if isinstance(constant, types.CodeType):
        return constant.replace(
            co_consts=tuple(_filled_in(inner, numbers) for inner in constant.co_consts)
        )
    if type(constant) is tuple:
        return tuple(_filled_in(inner, numbers) for inner in constant)
    return numbers.get(constant, constant) if type(constant) is int else constant


def with_replacements(source: str, edits: Sequence[tuple[ast.expr | ast.stmt, str]]) -> str:
    """Replaces each node's text by another text with at most as many lines."""
    lines = source.encode().split(b"\n")
    for node, text in sorted(
        edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True
    ):
        first = node.lineno - 1
        last = (node.end_lineno or node.lineno) - 1
        before = lines[first][: node.col_offset]
        after = lines[last][node.end_col_offset or 0 :]
        written = (before + text.encode() + after).split(b"\n")
        padding = [b""] * (last - first + 1 - len(written))
        lines[first : last + 1] = [*written, *padding]
    return b"\n".join(lines).decode()
