"""Detects kernels which use the results of atomic operations, so that the order of programs may
matter.
"""

from __future__ import annotations

import ast
import functools

from kernelwright.tools.parsing import parse_module

ORDER_FREE = ("atomic_load", "atomic_store", "atomic_poll")
"""Atomic operations handled as plain loads and stores."""


@functools.lru_cache(maxsize=256)
def uses_atomic_results(text: str) -> bool:
    """Returns whether the result of some `atomic_add`, `atomic_cas` ... is used. A text which
    cannot be parsed counts as such.
    """
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    unused = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    calls = (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in unused
    )
    return any(
        _name(call.func).startswith("atomic_") and _name(call.func) not in ORDER_FREE
        for call in calls
    )


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", "") or getattr(function, "id", ""))
