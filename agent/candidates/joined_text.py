"""Joins two modules into a single text.

Equal definitions stay once; other names defined in both modules change in the second text.

    first    def block(n): ...         class ModelNew: ...
    second   def block(n): ...         class ModelNew: ...
    joined   def block(n): ...         class ForwardKernels: ...    class BackwardKernels: ...
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set

from kernelwright.tools.parsing import with_replacements

FUTURE_IMPORT = re.compile(r"^from __future__ import .*\n", re.MULTILINE)


def joined_text(
    first: str,
    second: str,
    first_names: Mapping[str, str],
    second_names: Mapping[str, str],
    prefix: str,
) -> str:
    """Returns both modules as a single text.

    first_names, second_names: new names of definitions. prefix: prefix of the new names of
    definitions in the second text that differ from the first.
    """
    futures = dict.fromkeys(FUTURE_IMPORT.findall(first) + FUTURE_IMPORT.findall(second))
    first, second = FUTURE_IMPORT.sub("", first), FUTURE_IMPORT.sub("", second)
    first_definitions = _definitions(first)
    # `import torch` and `import torch.nn` bind the same object in every module: the name stays.
    packages = _imported_packages(first) & _imported_packages(second)
    shared = _shared(first, second, set(first_names) | set(second_names))
    names = dict(second_names)
    for name in _definitions(second):
        if name in first_definitions and name not in {*shared, *packages, *names}:
            names[name] = _new_name(
                f"{prefix}{name.lstrip('_')}", {*first_definitions, *_definitions(second)}
            )
    further_text = _without(_renamed(second, names), shared)
    return f"{''.join(futures)}{_renamed(first, first_names).strip()}\n\n\n{further_text.strip()}\n"


def _shared(first: str, second: str, renamed: Set[str]) -> set[str]:
    """Returns the names with equal definitions, all of whose names have equal definitions."""
    ours, theirs = _definitions(first), _definitions(second)
    equal = {
        name for name, text in theirs.items() if ours.get(name) == text and name not in renamed
    }
    while True:
        unequal = {
            n for n in equal if (_names_in(theirs[n]) & (theirs.keys() | ours.keys())) - equal - {n}
        }
        if not unequal:
            return equal
        equal -= unequal


def _definitions(text: str) -> dict[str, str]:
    """Returns the text of each defining statement of a module, by the defined names."""
    definitions: dict[str, str] = {}
    for statement in ast.parse(text).body:
        for name in _defined(statement):
            # The last definition counts, and a name defined twice is equal to no other.
            definitions[name] = definitions.get(name, "") + ast.unparse(statement) + "\n"
    return definitions


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    return [
        n.id
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


def _imported_packages(text: str) -> set[str]:
    """Returns the names that a module defines by plain imports only."""
    packages: set[str] = set()
    defined: set[str] = set()
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Import) and not any(a.asname for a in statement.names):
            packages.update(_defined(statement))
        else:
            defined.update(_defined(statement))
    return packages - defined


def _names_in(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _without(text: str, names: Set[str]) -> str:
    """Returns a module without statements defining only these names."""
    lines = text.splitlines()
    for statement in reversed(ast.parse(text).body):
        defined = _defined(statement)
        if defined and set(defined) <= names:
            decorators = getattr(statement, "decorator_list", [])
            start = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
            del lines[start - 1 : statement.end_lineno]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Returns a module with names replaced, including arguments and variables of functions."""
    tree = ast.parse(text)
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    edits: list[tuple[ast.expr | ast.stmt, str]] = []
    lines = text.splitlines()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in names:
                edits.append((node, names[name]))
            case ast.arg(arg=name) if name in names:
                edits.append((_name_at(node, name), names[name]))
            case ast.keyword(arg=str(name)) if name in names and name in arguments:
                edits.append((_name_at(node, name), names[name]))
            case ast.alias(name=imported, asname=alias) if (alias or imported) in names:
                text_of_import = f"{imported} as {names[alias or imported]}"
                edits.append((_whole(node), text_of_import))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in names:
                line = lines[node.lineno - 1].encode()
                column = line.index(name.encode(), node.col_offset + len("def"))
                edits.append((_name_at(node, name, column), names[name]))
    return with_replacements(text, edits)


def _whole(node: ast.alias) -> ast.Name:
    """Returns a name at the position of an import, for an edit of the whole import."""
    return ast.Name(
        node.name, lineno=node.lineno, col_offset=node.col_offset,
        end_lineno=node.end_lineno, end_col_offset=node.end_col_offset,
    )  # fmt: skip


def _name_at(
    node: ast.arg | ast.keyword | ast.stmt, name: str, column: int | None = None
) -> ast.Name:
    """Returns a name at the node's own place, or at another column of its first line."""
    start = node.col_offset if column is None else column
    end = start + len(name.encode())
    return ast.Name(
        name, lineno=node.lineno, col_offset=start, end_lineno=node.lineno, end_col_offset=end
    )


def _new_name(name: str, used_names: Set[str]) -> str:
    while name in used_names:
        name += "_"
    return name
