"""`int` and `float` of sizes that are symbols: Python's own ask for the number, and fix the size."""

from __future__ import annotations

import ast
import builtins
from typing import Any

WORDS = {"int": "__whole__", "float": "__real__"}
"""Python's name -> the name under which a module calls the one of ours."""


def whole(*given: Any, **named: Any) -> Any:
    """`int`, which keeps symbols."""
    import torch

    if given and isinstance(given[0], torch.SymInt | torch.SymFloat):
        return torch.sym_int(given[0])
    return builtins.int(*given, **named)


class _Standing(type):
    """For a type of Python's in `isinstance`."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float)


class Real(metaclass=_Standing):
    """`float`, which keeps symbols."""

    def __new__(cls, *given: Any) -> Any:
        import torch

        if given and isinstance(given[0], torch.SymInt | torch.SymFloat):
            return torch.sym_float(given[0])
        return builtins.float(*given)


def with_numbers(tree: ast.Module) -> ast.Module:
    """The same module with its calls of `int` and `float` as calls of ours, which `number_names` has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.func.id = WORDS.get(node.func.id, node.func.id)
    return tree


def number_names() -> dict[str, Any]:
    """What a module of `with_numbers` needs."""
    return {WORDS["int"]: whole, WORDS["float"]: Real}
