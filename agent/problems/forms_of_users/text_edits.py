"""Edits of a file's text at the places of its syntax tree. Lines that follow an edit keep their numbers."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Sequence


def with_replacements(source: str, edits: Sequence[tuple[ast.expr | ast.stmt, str]]) -> str:
    """Returns the text with each node's text replaced by another one, which has at most as many lines."""
    lines = source.encode().split(b"\n")
    for node, text in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first][: node.col_offset]
        after = lines[last][node.end_col_offset or 0 :]
        written = (before + text.encode() + after).split(b"\n")
        padding = [b""] * (last - first + 1 - len(written))
        lines[first : last + 1] = [*written, *padding]
    return b"\n".join(lines).decode()


def with_function(source: str, old: ast.FunctionDef, new: ast.FunctionDef) -> str:
    """Returns the text with one function of the module written anew."""
    return with_replacements(source, [(old, ast.unparse(ast.fix_missing_locations(new)))])


def renamed(text: str, name: str, new: str) -> str:
    """Returns the text with a class or function under a new name, wherever the text names it."""
    lines = text.splitlines(keepends=True)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.NAME]
    for token in reversed([t for t in tokens if t.string == name]):
        row, column = token.start[0] - 1, token.start[1]
        lines[row] = lines[row][:column] + new + lines[row][column + len(name) :]
    return "".join(lines)


def joined(text: str, definitions: Sequence[str]) -> str:
    """Returns the text with definitions after it, two blank lines before each."""
    return "\n\n\n".join([text.rstrip(), *definitions]) + "\n"


def statement_text(text: str, statement: ast.stmt) -> str:
    """Returns the lines of a statement with its decorators, as they stand at the top of a text."""
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : statement.end_lineno]))


def assignments(statement: ast.AST) -> list[tuple[str, ast.expr]]:
    """Returns names and values of `a = x`, `a: Config = x` and `a, b = x, y`; nothing for other statements."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        return [(statement.target.id, statement.value)]
    if not isinstance(statement, ast.Assign):
        return []
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [(t.id, v) for t, v in zip(target.elts, value.elts, strict=True) if isinstance(t, ast.Name)]
    return []
