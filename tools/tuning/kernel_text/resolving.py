"""Resolves an expression of the host code to the literals in the text which determine its value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.tools.tuning.kernel_text.kernel_syntax import called_name, dotted

MAX_NAMES_FOLLOWED = 6
"""Maximum number of names followed in a chain."""
_BOUNDED_BELOW = "max"


class Scopes:
    """The values of a file's names, as far as single assignments define them."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Functions, classes and at last the module round a node, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.Module):
                yield node

    def value_of(self, name: ast.expr) -> ast.expr | None:
        """Returns the expression assigned to a name, or to an attribute of `self`; None unless
        there is exactly one assignment.
        """
        if isinstance(name, ast.Name):
            return self._of_name(name)
        if (
            isinstance(name, ast.Attribute)
            and isinstance(name.value, ast.Name)
            and name.value.id == "self"
        ):
            return self._of_attribute(name)
        return None

    def function_of(self, name: ast.expr) -> ast.FunctionDef | ast.Lambda | None:
        """Returns the local function behind a name."""
        if isinstance(name, ast.Lambda):
            return name
        if not isinstance(name, ast.Name):
            return None
        for scope in self.enclosing(name):
            for inner in getattr(scope, "body", []) if not isinstance(scope, ast.Lambda) else []:
                if isinstance(inner, ast.FunctionDef) and inner.name == name.id:
                    return inner
        value = self._of_name(name)
        return value if isinstance(value, ast.Lambda) else None

    def _of_name(self, name: ast.Name) -> ast.expr | None:
        for scope in self.enclosing(name):
            if isinstance(scope, ast.ClassDef):
                continue
            assigned = list(self._assigned(scope, name.id))
            if assigned:
                return assigned[0] if len(assigned) == 1 else None
            if isinstance(scope, ast.FunctionDef | ast.Lambda) and name.id in _parameters(scope):
                return _default(scope, name.id)
        return None

    def _assigned(self, scope: ast.AST, name: str) -> Iterator[ast.expr | None]:
        """Yields every assignment to a name in a scope itself; None for an assignment without a
        plain expression.
        """
        for node in ast.walk(scope):
            if next(self.enclosing(node), None) is not scope:
                continue
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _matched(target, node.value, name)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from _matched(node.target, node.value, name)
            elif isinstance(node, ast.AugAssign | ast.For) and name in _names(node.target):
                yield None
            elif isinstance(node, ast.NamedExpr) and node.target.id == name:
                yield node.value

    def _of_attribute(self, attribute: ast.Attribute) -> ast.expr | None:
        owner = next((s for s in self.enclosing(attribute) if isinstance(s, ast.ClassDef)), None)
        if owner is None:
            return None
        assignments: list[ast.expr | None] = list(self._assigned(owner, attribute.attr))
        for node in ast.walk(owner):
            if isinstance(node, ast.Assign):
                attribute_name = f"self.{attribute.attr}"
                assignments += [
                    node.value
                    for t in node.targets
                    if isinstance(t, ast.Attribute) and dotted(t) == attribute_name
                ]
        return assignments[0] if len(assignments) == 1 else None


class Resolved:
    """Literal which determines an expression."""

    def __init__(self, literal: ast.Constant, capped: bool) -> None:
        self.literal = literal
        self.capped = capped


def resolve(
    scopes: Scopes, value: ast.expr | None, deepest: int = MAX_NAMES_FOLLOWED
) -> Resolved | None:
    """Returns the literal in the file which determines an expression; None if a shape, or no
    single literal, determines it.
    """
    if value is None or deepest == 0:
        return None
    if isinstance(value, ast.Constant):
        return Resolved(value, False) if type(value.value) in (int, str) else None
    if isinstance(value, ast.Name | ast.Attribute):
        return resolve(scopes, scopes.value_of(value), deepest - 1)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return resolve(scopes, _entry(scopes, value), deepest - 1)
    if isinstance(value, ast.Call):
        if dotted(value.func).endswith("constexpr") and len(value.args) == 1:
            return resolve(scopes, value.args[0], deepest - 1)
        return _capped(value)
    return None


def entries(scopes: Scopes, value: ast.expr) -> dict[str, ast.expr]:
    """Returns the entries of a dict with constant keys, as passed by `**value`."""
    if isinstance(value, ast.Name | ast.Attribute):
        inner = scopes.value_of(value)
        return entries(scopes, inner) if inner is not None else {}
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return {
            k.value: v for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)
        }
    if isinstance(value, ast.Call) and dotted(value.func) == "dict":
        return {k.arg: k.value for k in value.keywords if k.arg is not None}
    return {}


def _entry(scopes: Scopes, value: ast.Subscript) -> ast.expr | None:
    key = value.slice.value if isinstance(value.slice, ast.Constant) else None
    return entries(scopes, value.value).get(key) if isinstance(key, str) else None


def _capped(call: ast.Call) -> Resolved | None:
    """Returns the largest power of two in `min(1024, ...)` or `block_for(n, 1024, 16)`, or within
    the argument of `max(16, ...)`.
    """
    inner = [r for a in call.args if isinstance(a, ast.Call) and (r := _capped(a)) is not None]
    literals = [a for a in call.args if isinstance(a, ast.Constant) and _power(a.value)]
    if called_name(call) == _BOUNDED_BELOW:
        literals = []
    candidates = [*(r.literal for r in inner), *literals]
    best = max(candidates, key=lambda literal: int(str(literal.value)), default=None)
    return Resolved(best, True) if best is not None else None


def _power(value: object) -> bool:
    return type(value) is int and value > 1 and value & (value - 1) == 0


def _matched(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr | None]:
    """Yields the value assigned to a name by `a, b = 1, 2`."""
    if isinstance(target, ast.Name):
        if target.id == name:
            yield value
    elif isinstance(target, ast.Tuple | ast.List) and name in _names(target):
        several = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        if len(several) == len(target.elts):
            for element, other in zip(target.elts, several, strict=True):
                yield from _matched(element, other, name)
        else:
            yield None


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _parameters(scope: ast.FunctionDef | ast.Lambda) -> list[str]:
    return [a.arg for a in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)]


def _default(scope: ast.FunctionDef | ast.Lambda, name: str) -> ast.expr | None:
    positional = [a.arg for a in (*scope.args.posonlyargs, *scope.args.args)]
    pairs = dict(zip(positional[::-1], scope.args.defaults[::-1], strict=False))
    named = zip([a.arg for a in scope.args.kwonlyargs], scope.args.kw_defaults, strict=True)
    return (pairs | {n: v for n, v in named if v is not None}).get(name)
