"""Drops the axes of extent one that Inductor gives the tiles of a product.

Inductor indexes a product with the axes (row, column, step), or (matrix, row, column, step), and keeps those of the
matrix and the step as axes of one element when the result is stored. Once the operands are matrices (flat_products.py),
only rows and columns remain.

Example: the lines

    row = first_row + tl.arange(0, ROW_BLOCK)[:, None, None]
    left_row = first_row + tl.arange(0, ROW_BLOCK)[:, None]
    column = first_column + tl.arange(0, COLUMN_BLOCK)[None, :, None]
    right_column = first_column + tl.arange(0, COLUMN_BLOCK)[None, :]
    tl.store(out_pointer + (column + 64 * row), accumulator[:, :, None])

become

    row = first_row + tl.arange(0, ROW_BLOCK)[:, None]
    column = first_column + tl.arange(0, COLUMN_BLOCK)[None, :]
    tl.store(out_pointer + (column + 64 * row), accumulator)
"""

from __future__ import annotations

import ast
from collections import Counter

from kernelwright.policies.inductor.syntax import argument_names, names_in, nodes_in

SHAPED_BY_A_LIST = {"tl.full", "tl.zeros", "tl.broadcast_to"}
"""Calls with their result's shape in a list."""
SHAPED_OTHERWISE = {
    "tl.reshape", "tl.trans", "tl.sum", "tl.max", "tl.min", "tl.reduce", "tl.cumsum", "tl.view", "tl.join", "tl.split",
    "tl.associative_scan", "tl.expand_dims", "tl.permute", "tl.argmax", "tl.argmin", "tl.cat",
}  # fmt: skip
"""Calls whose result has axes that this module does not follow."""
MATRIX_AXES = 2


def drop_axes_of_one(function: ast.FunctionDef) -> bool:
    """Rewrites the tiles of a product with two axes, in place; returns whether the kernel was changed.

    A kernel stays as it is if its tiles have more than two axes with elements, or are made by a call that is not
    followed here.
    """
    subscripts = [node for node in nodes_in(function, ast.Subscript) if _axes(node)]
    ranks = {len(_axes(node)) for node in subscripts} - {MATRIX_AXES}
    if len(ranks) != 1 or _is_shaped_otherwise(function):
        return False
    (rank,) = ranks
    live: set[int] = set()
    for node in subscripts:
        if len(_axes(node)) == rank:
            live |= {position for position, axis in enumerate(_axes(node)) if _is_slice(axis)}
    shapes = [shape for shape in _shapes(function) if len(shape.elts) == rank]
    dead = set(range(rank)) - live
    if len(live) != MATRIX_AXES or any(_holds(shape, dead) for shape in shapes):
        return False
    for shape in shapes:
        shape.elts = [shape.elts[position] for position in sorted(live)]
    _Dropping(rank, live).visit(function)
    merge_equal_values(function)
    ast.fix_missing_locations(function)
    return True


def merge_equal_values(function: ast.FunctionDef) -> None:
    """Gives equal arithmetic at the start of a kernel and of its loops one name, in place.

    Only values that are assigned once and read no memory are merged: a load may follow a store.
    """
    while new_names := _second_names(function):
        _Renaming(new_names).visit(function)


def _second_names(function: ast.FunctionDef) -> dict[str, str]:
    """Returns the names of values that an earlier name of the same statements already has."""
    stored = Counter(
        node.id for node in nodes_in(function, ast.Name) if isinstance(node.ctx, ast.Store)
    )
    stored.update(argument_names(function))
    new_names: dict[str, str] = {}
    bodies = [function.body, *(loop.body for loop in nodes_in(function, ast.For))]
    for body in bodies:
        first: dict[str, str] = {}
        for statement in body:
            name = _plain_target(statement)
            if not name or stored[name] != 1 or not isinstance(statement, ast.Assign):
                continue
            if any(stored[read] > 1 for read in names_in(statement.value)):
                continue
            earlier = first.setdefault(ast.unparse(statement.value), name)
            if earlier != name:
                new_names[name] = earlier
    return new_names


def _plain_target(statement: ast.stmt) -> str:
    """Returns the name that a statement gives a value computed without memory; empty if there is none."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    touches_memory = "tl.load" in ast.unparse(statement.value) or "atomic" in ast.unparse(
        statement.value
    )
    return target.id if isinstance(target, ast.Name) and not touches_memory else ""


class _Renaming(ast.NodeTransformer):
    """Replaces names by earlier ones, and drops the assignments of the replaced names."""

    def __init__(self, new_names: dict[str, str]) -> None:
        self._new_names = new_names

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        if _plain_target(node) in self._new_names:
            return None
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new_names.get(node.id, node.id), node.ctx)


class _Dropping(ast.NodeTransformer):
    """Removes the dead axes of every index with the full number of axes."""

    def __init__(self, rank: int, live: set[int]) -> None:
        self._rank, self._live = rank, sorted(live)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        axes = _axes(node)
        if len(axes) != self._rank:
            return node
        remaining = [axes[position] for position in self._live]
        if all(map(_is_slice, remaining)):
            return node.value
        node.slice = ast.Tuple(remaining, ast.Load())
        return node


def _axes(node: ast.Subscript) -> list[ast.expr]:
    """Returns the elements of an index such as `[:, None]`; empty for every other index."""
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    known = all(_is_slice(axis) or ast.unparse(axis) == "None" for axis in axes)
    return list(axes) if known else []


def _is_slice(axis: ast.expr) -> bool:
    return isinstance(axis, ast.Slice)


def _is_shaped_otherwise(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(call.func) in SHAPED_OTHERWISE for call in nodes_in(function, ast.Call))


def _shapes(function: ast.FunctionDef) -> list[ast.List]:
    """Returns the lists with a tile's shape."""
    return [
        node
        for call in nodes_in(function, ast.Call)
        if ast.unparse(call.func) in SHAPED_BY_A_LIST
        for node in call.args
        if isinstance(node, ast.List)
    ]


def _holds(shape: ast.List, positions: set[int]) -> bool:
    """Returns whether a shape has more than one element along any of the axes."""
    return any(ast.unparse(shape.elts[position]) != "1" for position in positions)
