"""Resolves names and attributes in a source, and finds those changed after their binding."""

from __future__ import annotations

import ast
from typing import TypeGuard

from kernelwright.tools.tracing.host_code.choices import Function, Scope

MUTATING_METHODS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "update",
        "setdefault",
        "add",
        "remove",
        "clear",
        "appendleft",
    }
)


def is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Returns True for `self.name`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def name_called(call: ast.Call) -> str:
    """Returns the last name of a call's target: `get` for `table.get(1)`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def changed_names(tree: ast.Module) -> set[str]:
    """Returns names and attributes changed after their binding: globals of functions, attributes of
    objects other than `self`, written containers.

    Returns nearly everything for a source that changes names by text.
    """
    changed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            changed |= set(node.names)
        elif (
            isinstance(node, ast.Attribute)
            and not isinstance(node.ctx, ast.Load)
            and not is_of_self(node)
        ):
            changed.add(node.attr)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed |= _innermost_names(node)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATING_METHODS
        ):
            changed |= _innermost_names(node.func)
        elif isinstance(node, ast.Name) and node.id in (
            "setattr",
            "globals",
            "vars",
            "exec",
            "eval",
            "locals",
        ):
            changed |= {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)} - {
                "torch",
                "triton",
                "tl",
            }
            changed |= {part.attr for part in ast.walk(tree) if is_of_self(part)}
    return changed


def _innermost_names(node: ast.AST) -> set[str]:
    """Returns the name that is written to by `name[...] = ...` or `self.name.append(...)`."""
    inner: ast.AST = node
    while isinstance(inner, ast.Subscript | ast.Attribute) and not is_of_self(inner):
        inner = inner.value
    if isinstance(inner, ast.Attribute):
        return {inner.attr}
    return {inner.id} if isinstance(inner, ast.Name) else set()


def is_container(value: ast.expr) -> bool:
    """Returns True for a new list, dictionary or set, which a call may fill."""
    if isinstance(value, ast.Call):
        return name_called(value) in (
            "list",
            "dict",
            "set",
            "defaultdict",
            "Counter",
            "deque",
            "OrderedDict",
        )
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)


def parameters_of(function: Function) -> list[str]:
    """Returns the names of a function's parameters, in order."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [variadic for variadic in (arguments.vararg, arguments.kwarg) if variadic is not None]
    return [argument.arg for argument in named]


def bindings(scope: ast.AST) -> dict[str, list[ast.AST | None]]:
    """Returns the values assigned to each name of a function or module; None for values that are
    not plain."""
    bound: dict[str, list[ast.AST | None]] = {}
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.setdefault(node.name, []).append(None)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                bound.setdefault((alias.asname or alias.name).split(".")[0], []).append(node)
        for name, value in _targets(node):
            bound.setdefault(name, []).append(value)
        if not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return bound


def _targets(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        pairs: list[tuple[ast.expr, ast.expr | None]] = [
            (target, node.value) for target in node.targets
        ]
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        pairs = [(node.target, _Unknown if isinstance(node, ast.AugAssign) else node.value)]
    elif isinstance(node, ast.For | ast.comprehension):
        pairs = [(node.target, _Unknown)]
    else:
        return []
    named: list[tuple[str, ast.expr | None]] = []
    for target, value in pairs:
        if isinstance(target, ast.Name):
            named.append((target.id, value))
        elif isinstance(target, ast.Tuple | ast.List):
            parts = (
                value.elts
                if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                else None
            )
            for index, inner in enumerate(target.elts):
                if isinstance(inner, ast.Name):
                    named.append((inner.id, parts[index] if parts else value))
    return named


_Unknown = ast.Await(ast.Constant(None))
"""Stands for a value that is not looked into."""


def attributes_of_instances(tree: ast.Module) -> dict[str, list[tuple[str, ast.expr, Scope]]]:
    """Returns, for each attribute of `self`, the assigning methods and the assigned values."""
    assignments: dict[str, list[tuple[str, ast.expr, Scope]]] = {}
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            for node in ast.walk(method):
                for target, value in _assigned_attributes(node):
                    assignments.setdefault(target, []).append((method.name, value, (owner, method)))
    return assignments


def _assigned_attributes(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
        pairs = [(node.target, node.value if isinstance(node, ast.AnnAssign) else _Unknown)]
    else:
        return []
    assignments = []
    for target, value in pairs:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        values = (
            value.elts
            if isinstance(value, ast.Tuple) and len(value.elts) == len(parts)
            else [value] * len(parts)
        )
        assignments += [(p.attr, v) for p, v in zip(parts, values, strict=True) if is_of_self(p)]
    return assignments
