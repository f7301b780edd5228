"""Names that a Python text binds by definitions, assignments, imports and loops, also inside of blocks.

Read from the syntax tree; nothing runs. `from module import *` binds names that no text tells. The module lies below
every floor, because `tools`, `policies` and `agent` read the same texts.
"""

from __future__ import annotations

import ast

_OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)


def bound_names(node: ast.Module | ast.stmt) -> list[str]:
    """Returns the names that a module or a statement binds in its own scope, each once, in the order of the text."""
    names: dict[str, None] = {}
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        names |= dict.fromkeys(_names_bound_by(part))
        if not isinstance(part, _OTHER_SCOPES):
            waiting += reversed(list(ast.iter_child_nodes(part)))
    return list(names)


def _names_bound_by(node: ast.AST) -> list[str]:
    """Returns the names that one node binds, its children left out."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [(alias.asname or alias.name).partition(".")[0] for alias in aliases]
        case ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case (
            ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return [name]
    return []


def changed_names(statement: ast.stmt) -> set[str]:
    """Returns the names whose values a statement changes in place: `layers.append(x)`, `options["width"] = 8`."""
    changed: set[str] = set()
    for part in ast.walk(statement):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            changed |= _root_name(part.value.func)
        elif isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
            changed |= _root_name(part)
    return changed


def _root_name(node: ast.expr) -> set[str]:
    """Returns the name at the beginning of `name.part[0].other`; nothing for a plain name and for other expressions."""
    root: ast.expr = node
    while isinstance(root, ast.Subscript | ast.Attribute):
        root = root.value
    return {root.id} if isinstance(root, ast.Name) and root is not node else set()


def binding_statement(tree: ast.Module, name: str) -> ast.stmt | None:
    """Returns the last statement at the top of a module that binds a name; None where none does."""
    binding = [statement for statement in tree.body if name in bound_names(statement)]
    return binding[-1] if binding else None


def function_at_top(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Returns the last function of that name which a module defines at its top; None where it defines none."""
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return functions[-1] if functions else None
