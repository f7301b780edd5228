"""Reads the launches of a file from its syntax: the kernel, the arguments of its parameters, and
the grid.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax, called_name
from kernelwright.tools.tuning.kernel_text.resolving import Scopes, entries, resolve

MAX_GRID_NAMES_FOLLOWED = 5


@dataclass(frozen=True)
class LaunchSyntax:
    """Syntax of a launch `kernel[grid](...)`."""

    call: ast.Call
    kernel: KernelSyntax
    bound: dict[str, ast.expr]
    """Argument expression of each parameter, and of each option of the launch."""
    grid: ast.expr


@dataclass(frozen=True)
class GridDivision:
    """`cdiv(extent, literal)` in a grid."""

    literal: ast.Constant
    extent: ast.expr
    axis: int | None
    """Axis of the grid; None if the grid is no literal tuple."""
    less_one: ast.Constant | None = None
    """The 63 of `(n + 63) // 64`."""


def launches_of(
    tree: ast.Module, kernels: dict[str, KernelSyntax], scopes: Scopes
) -> list[LaunchSyntax]:
    """Yields the launches in the order of the text."""
    launches = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            name = node.func.value
            if isinstance(name, ast.Name) and name.id in kernels:
                kernel = kernels[name.id]
                launches.append(
                    LaunchSyntax(node, kernel, _bound(node, kernel, scopes), node.func.slice)
                )
    return sorted(launches, key=lambda launch: (launch.call.lineno, launch.call.col_offset))


def _bound(call: ast.Call, kernel: KernelSyntax, scopes: Scopes) -> dict[str, ast.expr]:
    bound: dict[str, ast.expr] = {}
    for name, value in zip(kernel.parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        bound[name] = value
    for keyword in call.keywords:
        if keyword.arg is None:
            bound |= entries(scopes, keyword.value)
        else:
            bound[keyword.arg] = keyword.value
    for name in kernel.constexprs:
        default = kernel.default_of(name)
        if name not in bound and default is not None and not _starred(call):
            bound[name] = default
    return bound


def _starred(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    )


def divisions_of(launch: LaunchSyntax, scopes: Scopes) -> list[GridDivision]:
    """Returns the divisions by a number in a grid."""
    grid = _body(scopes, launch.grid, MAX_GRID_NAMES_FOLLOWED)
    axes: list[tuple[int | None, ast.expr]] = [(None, grid)]
    if isinstance(grid, ast.Tuple | ast.List):
        starred = any(isinstance(e, ast.Starred) for e in grid.elts)
        axes = [(None if starred else i, element) for i, element in enumerate(grid.elts)]
    return [
        d
        for axis, element in axes
        for d in _divisions(scopes, element, axis, MAX_GRID_NAMES_FOLLOWED)
    ]


def _body(scopes: Scopes, grid: ast.expr, deepest: int) -> ast.expr:
    """Returns the expression of a grid: the returned value of a function, or the value assigned
    to a name.
    """
    function = scopes.function_of(grid)
    if isinstance(function, ast.Lambda):
        return function.body
    if isinstance(function, ast.FunctionDef):
        returned = [
            n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None
        ]
        return returned[0] if len(returned) == 1 else grid
    value = scopes.value_of(grid) if isinstance(grid, ast.Name | ast.Attribute) else None
    return _body(scopes, value, deepest - 1) if value is not None and deepest else grid


def _divisions(
    scopes: Scopes, value: ast.expr, axis: int | None, deepest: int
) -> list[GridDivision]:
    divisions: list[GridDivision] = []
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and called_name(node) == "cdiv" and len(node.args) == 2:
            extent, by = node.args
            divisions += _division(scopes, extent, by, axis)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            divisions += _division(scopes, node.left, node.right, axis)
        elif (
            isinstance(node, ast.Name) and deepest and (inner := scopes.value_of(node)) is not None
        ):
            divisions += _divisions(scopes, inner, axis, deepest - 1)
    return divisions


def _division(
    scopes: Scopes, extent: ast.expr, by: ast.expr, axis: int | None
) -> list[GridDivision]:
    resolved = resolve(scopes, by)
    if resolved is None or type(resolved.literal.value) is not int:
        return []
    less_one = None
    rounds_up = isinstance(extent, ast.BinOp) and isinstance(extent.op, ast.Add)
    extent_node: Any = extent
    if (
        rounds_up
        and isinstance(extent_node.right, ast.Constant)
        and extent_node.right.value == resolved.literal.value - 1
    ):
        less_one = extent_node.right
        extent = extent_node.left
    return [GridDivision(resolved.literal, extent, axis, less_one)]
