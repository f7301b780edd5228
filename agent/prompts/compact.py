"""A reference in as few tokens as it takes: what small policies are trained on and asked in."""

from __future__ import annotations

import ast

from tools.problem import CPU_SIZES, parse

_LEFT_OUT = {"FAMILY", "TAGS", "ALIASES", CPU_SIZES}


def compact_reference(source: str) -> str:
    """The reference without imports, comments, docstrings and our own notes, written as `ast.unparse` does."""
    tree = parse(source)
    tree.body = [node for node in tree.body if not _is_left_out(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) and _has_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in _LEFT_OUT for t in node.targets)


def _has_docstring(node: ast.ClassDef | ast.FunctionDef | ast.Module) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
