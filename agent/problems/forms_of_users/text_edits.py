"""Edits source text at positions of its syntax tree.

Lines after an edit keep their numbers.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Sequence

from kernelwright.source_lines import NO_FILE, origin_of_line
from kernelwright.tools.parsing import with_replacements


def with_function(source: str, old: ast.FunctionDef, new: ast.FunctionDef) -> str:
    """Replaces a function of the module."""
    return with_replacements(source, [(old, ast.unparse(ast.fix_missing_locations(new)))])


def renamed(text: str, name: str, new: str) -> str:
    """Renames a class or function throughout a text.

    An imported name keeps its original name in its own module: `from shapes import Model as
    Reference`.
    """
    lines = text.splitlines(keepends=True)
    imported = _imported_as(text, name, new)
    # Tokens instead of the syntax tree: names in comments and texts stay as they are.
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    names = [token for token in tokens if token.type == tokenize.NAME and token.string == name]
    # From the last to the first, so that columns of earlier tokens stay valid.
    for token in reversed(names):
        row, column = token.start[0] - 1, token.start[1]
        written = imported.get(token.start, new)
        lines[row] = lines[row][:column] + written + lines[row][column + len(name) :]
    return "".join(lines)


def _imported_as(text: str, name: str, new: str) -> dict[tuple[int, int], str]:
    """Returns the replacement text for each import of a name, by position (line, column)."""
    written: dict[tuple[int, int], str] = {}
    for statement in ast.walk(ast.parse(text)):
        aliases = statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else []
        for alias in aliases:
            if alias.name == name:
                written[alias.lineno, alias.col_offset] = (
                    name if alias.asname else f"{name} as {new}"
                )
    return written


def joined(text: str, definitions: Sequence[str]) -> str:
    """Appends definitions that belong to no file, separated by two blank lines."""
    marked = [f"{NO_FILE.directive}\n{definition}" for definition in definitions]
    return "\n\n\n".join([text.rstrip(), *marked]) + "\n"


LINE_MARK = re.compile(r"^( *)#of (\d+)$", re.MULTILINE)


def line_mark(node: ast.expr | ast.stmt) -> str:
    """Returns a comment with the origin line of the next line, in a text under completion."""
    return f"#of {node.lineno}"


def unparsed_lines(statement: ast.stmt) -> list[str]:
    """Returns the lines of `ast.unparse` for a statement, with an origin mark before each nested
    statement.
    """
    text = ast.unparse(ast.fix_missing_locations(statement))
    # Both trees have equal statements in equal order; only the line numbers differ.
    written = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    originals = [node for node in ast.walk(statement) if isinstance(node, ast.stmt)]
    marks: dict[int, str] = {}
    for node, original in zip(written, originals, strict=True):
        marks[node.lineno] = line_mark(original)
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if number in marks:
            lines.append(" " * (len(line) - len(line.lstrip())) + marks[number])
        lines.append(line)
    return lines


def with_origins(text: str, source: str) -> str:
    """Converts the origin marks of a completed text to directives. source: text whose lines the
    marks count.
    """

    def directive(mark: re.Match[str]) -> str:
        number = int(mark[2])
        origin = origin_of_line(source, number) if number else NO_FILE
        return mark[1] + origin.directive

    return LINE_MARK.sub(directive, text)


def statement_text(text: str, statement: ast.stmt) -> str:
    """Returns the dedented lines of a statement with its decorators."""
    return textwrap.dedent(
        "\n".join(text.splitlines()[first_line_of(statement) - 1 : statement.end_lineno])
    )


def first_line_of(statement: ast.stmt) -> int:
    """Returns the first line of a statement, including decorators."""
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])


def assignments(statement: ast.AST) -> list[tuple[str, ast.expr]]:
    """Returns names and values of `a = x`, `a: Config = x` and `a, b = x, y`; nothing for other
    statements.
    """
    if (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.value
    ):
        return [(statement.target.id, statement.value)]
    if not isinstance(statement, ast.Assign):
        return []
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    pairs: list[tuple[str, ast.expr]] = []
    if (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        for element, element_value in zip(target.elts, value.elts, strict=True):
            if isinstance(element, ast.Name):
                pairs.append((element.id, element_value))
    return pairs
