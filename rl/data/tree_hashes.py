"""A model's syntax tree as a hash, independent of names, numbers, annotations and docstrings."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.problem import tree_text


@lru_cache(maxsize=65536)
def tree_hash(source: str) -> str:
    """Returns the SHA-1 of the model's syntax tree, with names numbered in order of appearance
    and without numbers; empty if the text does not parse.
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
    """Returns the dumped tree without docstrings, annotations, variable names and numbers.

    Attributes stay: they are the operations.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.Name):
            # Names are numbered in order of appearance.
            node.id = names.setdefault(node.id, f"n{len(names)}")
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = names.setdefault(node.arg, f"n{len(names)}"), None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            node.value = 0
    return tree_text(tree)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
