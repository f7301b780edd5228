"""A model's syntax tree as a hash: the same text but for names, numbers, annotations and docstrings."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.problem import tree_text


@lru_cache(maxsize=65536)
def tree_hash(source: str) -> str:
    """SHA-1 of the model's syntax tree with names numbered in the order they appear and numbers left out; "" where
    it does not parse.
    """
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    return hashlib.sha1(
        _shape(model or tree).encode("utf-8", "replace"), usedforsecurity=False
    ).hexdigest()


def _shape(tree: ast.AST) -> str:
    """The dumped tree without docstrings, annotations, names of variables and numbers.

    Attributes stay: they are the operations.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.Name):
            node.id = names.setdefault(node.id, f"n{len(names)}")
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = names.setdefault(node.arg, f"n{len(names)}"), None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            node.value = 0
    return tree_text(tree)
