"""Finds names that a kernel uses on every path and that nothing defines: such a kernel fails whatever its arguments
are.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from kernelwright.tools.launchless.module_functions import LANGUAGE, TRITON, Module, bound_names

BUILTINS = frozenset(dir(builtins))


def first_undefined_name(module: Module, kernel: str) -> str:
    """The first such name in the kernel or a function of the module that it surely calls; "" where there is none.

    Under a condition nothing is sure: a launch may have left that branch out.
    """
    if "globals(" in module.text or any(
        a.name == "*" for n in ast.walk(module.tree) if isinstance(n, ast.ImportFrom) for a in n.names
    ):
        return ""
    everywhere = _top_names(module.tree) | BUILTINS
    aliases = module.aliases()
    todo, seen = [kernel], {kernel}
    while todo:
        function = module.functions[todo.pop()]
        known = everywhere | bound_names(function)
        for node in _nodes_of_every_call(function.body):
            if isinstance(node, ast.Name) and node.id not in known:
                return node.id
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and _triton_lacks(aliases.get(node.value.id), node.attr)
            ):
                return f"{node.value.id}.{node.attr}"
            if isinstance(node, ast.Name) and node.id in module.functions and node.id not in seen:
                seen.add(node.id)
                todo.append(node.id)
    return ""


def _top_names(tree: ast.Module) -> set[str]:
    """Returns the names that a module binds at its top level, and those that its functions declare global."""
    found = {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        found |= (
            bound_names(node) if isinstance(node, ast.Import | ast.ImportFrom | ast.Name | ast.ExceptHandler) else set()
        )
        todo += ast.iter_child_nodes(node)
    return found


def _nodes_of_every_call(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes that every call of the function compiles, up to the first condition that may return."""
    for statement in body:
        yield from _unconditional_nodes(statement)
        if any(isinstance(n, ast.Return) for n in ast.walk(statement)):
            return


def _unconditional_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and its children, without the branches of conditions and the annotations."""
    yield node
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield from _unconditional_nodes(node.test)
        return
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.BoolOp):
        parts = parts[:2]
    elif isinstance(node, ast.AnnAssign):
        parts = [n for n in (node.target, node.value) if n]
    elif isinstance(node, ast.For) and "static_range" in ast.unparse(node.iter):
        parts = [node.iter]  # it may be unrolled no times
    for part in parts:
        yield from _unconditional_nodes(part)


def _triton_lacks(owner: str | None, name: str) -> bool:
    """Whether this Triton has no such name. Only triton itself is imported."""
    import importlib

    return owner in (TRITON, LANGUAGE) and not hasattr(importlib.import_module(str(owner)), name)
