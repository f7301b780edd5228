"""Divisions that do not change from step to step of a product, made once before its loop.

The compiler leaves them in the loop, because a loop without a step would not divide; 64-bit divisions by a size then
cost more than the product.
"""

from __future__ import annotations

import ast

from kernelwright.policies.inductor.syntax import (
    argument_names,
    names_assigned,
    names_in,
    unique_name,
)
from kernelwright.policies.inductor.writing.plain import assignments

DIVIDING = {"floor_divide", "remainder"}
"""Division helpers of drafts."""


def hoist_divisions(function: ast.FunctionDef) -> None:
    """Names them before each outermost loop of a kernel, in place."""
    # From the end, so that insertions do not move the statements still to visit.
    for position, statement in reversed(list(enumerate(function.body))):
        if isinstance(statement, ast.For):
            hoisting = _Hoisting(function, statement)
            statement.body = [hoisting.visit(inner) for inner in statement.body]
            function.body[position:position] = hoisting.definitions
    ast.fix_missing_locations(function)


class _Hoisting(ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef, loop: ast.For) -> None:
        self._changing = names_assigned(loop)
        self._used_names = {name for name, _ in assignments(function)} | argument_names(function)
        self._used_names |= names_in(function)
        self._names: dict[str, str] = {}
        self.definitions: list[ast.stmt] = []

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._hoisted(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._hoisted(node)

    def _hoisted(self, node: ast.expr) -> ast.expr:
        if not _divides(node) or not self._steady(node):
            self.generic_visit(node)
            return node
        text = ast.unparse(node)
        if text not in self._names:
            self._names[text] = self._name(node)
            self.definitions += ast.parse(f"{self._names[text]} = {text}").body
        return ast.Name(self._names[text], ast.Load())

    def _steady(self, node: ast.expr) -> bool:
        """Returns whether an expression is arithmetic of names the loop does not change."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                if not (isinstance(inner.func, ast.Name) and inner.func.id in DIVIDING):
                    return False
            elif isinstance(inner, ast.Name):
                if inner.id in self._changing:
                    return False
            elif not isinstance(
                inner,
                ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop | ast.Load,
            ):
                return False
        return True

    def _name(self, node: ast.expr) -> str:
        base = next((n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id.startswith(("left_", "right_"))),
                    "steady")  # fmt: skip
        return unique_name(f"{base}_part", self._used_names)


def _divides(node: ast.expr) -> bool:
    return any(
        (isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv | ast.Mod))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in DIVIDING)
        for n in ast.walk(node)
    )
