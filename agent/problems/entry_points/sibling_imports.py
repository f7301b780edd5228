"""Inlines imports from files beside the user's file, so that the problem's text is
self-contained.

from .layers import gelu, Norm as N        ->  definitions of gelu and Norm with dependencies, and
N = Norm
import layers                              ->  all of layers.py, and layers =
types.SimpleNamespace(gelu=gelu, ...)
"""

from __future__ import annotations

import ast
from pathlib import Path

from kernelwright.agent.problems.forms_of_users.import_time_code import free_names
from kernelwright.agent.problems.forms_of_users.text_edits import first_line_of, statement_text
from kernelwright.bindings import bound_names
from kernelwright.source_lines import NO_FILE, LineOrigin, origin_of_line
from kernelwright.tools.problem import ProblemError, parse

MAX_IMPORT_DEPTH = 8
"""Maximum depth of files that import one another."""


def with_siblings(source: str, path: Path, depth: int = 0) -> str:
    """Replaces imports from the file's own folder by the imported definitions.

    Raises ProblemError if two files define the same name, or for circular imports.
    """
    tree = parse(source)
    imports: list[tuple[ast.stmt, Path]] = []
    for node in tree.body:
        file = _sibling(node, path)
        if file is not None:
            imports.append((node, file))
    if not imports:
        return source
    if depth == MAX_IMPORT_DEPTH:
        raise ProblemError(
            "its files import one another in a circle: put what the module needs into one file"
        )
    lines = source.split("\n")
    defined_names = set(bound_names(tree)) - {
        name for node, _ in imports for name in bound_names(node)
    }
    written = dict.fromkeys(defined_names, "")
    for node, file in imports:
        text = _definitions(node, file, written, depth)
        # The statement's further lines become empty: later lines keep their numbers.
        further_lines = (node.end_lineno or node.lineno) - node.lineno
        following = LineOrigin(node.lineno + 1).directive
        lines[node.lineno - 1 : node.end_lineno] = [f"{text}\n{following}", *[""] * further_lines]
    return "\n".join(lines)


def _sibling(node: ast.stmt, path: Path) -> Path | None:
    """Returns the file that a statement imports, if located beside the importing file or above."""
    if isinstance(node, ast.ImportFrom):
        folder = path.absolute().parents[max(node.level - 1, 0)]
        name = node.module or node.names[0].name
    elif isinstance(node, ast.Import) and len(node.names) == 1:
        folder, name = path.absolute().parent, node.names[0].name
    else:
        return None
    stem = folder.joinpath(*name.split("."))
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if file.is_file():
            return file
    return None


def _definitions(node: ast.stmt, file: Path, written: dict[str, str], depth: int) -> str:
    """Returns the definitions needed by an import statement, each once.

    written: names and texts of earlier definitions; "" for names of the importing file.
    """
    content = file.read_text(encoding="utf-8")
    try:
        parse(content)
    except ProblemError as error:
        raise ProblemError(f"{file.name}, which it imports: {error}") from None
    text = with_siblings(content, file, depth + 1)
    tree = parse(text)
    bound = set(bound_names(tree))
    assert isinstance(node, ast.Import | ast.ImportFrom)
    is_star = node.names[0].name == "*"
    whole = isinstance(node, ast.Import) or node.module is None or is_star
    aliases = [] if whole else node.names
    needed = set(bound) if whole else {alias.name for alias in aliases}
    if missing := needed - bound:
        raise ProblemError(
            f"{file.name}, which it imports, has no {', '.join(sorted(missing))}: check the name"
        )
    pieces: list[str] = []
    # Backwards, so that a needed definition adds its dependencies before they are reached.
    for statement in reversed(tree.body):
        names = set(bound_names(statement))
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        if not names & needed or _is_future(statement):
            continue
        needed |= free_names(statement)
        piece = statement_text(text, statement)
        if other := [n for n in names if written.get(n, piece) != piece and not is_import]:
            raise ProblemError(
                f"{file.name}, which it imports, defines {other[0]} too: give one another name"
            )
        if is_import or not names <= set(written):
            pieces.insert(0, f"{_origin(text, statement, file).directive}\n{piece}")
        written |= dict.fromkeys(() if is_import else names, piece)
    renamed = [f"{alias.asname} = {alias.name}" for alias in aliases if alias.asname]
    if whole and not is_star:
        alias = node.names[0]
        members = ", ".join(f"{name}={name}" for name in sorted(bound))
        renamed = [f"import types\n{alias.asname or alias.name} = types.SimpleNamespace({members})"]
    return "\n\n\n".join([*pieces, *(f"{NO_FILE.directive}\n{line}" for line in renamed)])


def _origin(text: str, statement: ast.stmt, file: Path) -> LineOrigin:
    """Returns file and line of a statement, including its decorators."""
    origin = origin_of_line(text, first_line_of(statement))
    return origin._replace(file=origin.file or file.name)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
