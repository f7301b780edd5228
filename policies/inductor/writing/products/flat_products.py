"""Rewrites operands of `tl.dot` so that they are loaded as matrices.

Inductor loads them with three or four axes and reshapes them, which moves them from shared memory
through registers and
back before the product.

Example: `tl.dot(tl.reshape(x, [R, K]), ...)` with `x = tl.load(p + r[:, None, None] * k + s[None,
None, :])` becomes
`tl.dot(left_x, ...)` with `left_x = tl.load(p + left_r * k + left_s)`, of shape [R, K] from the
start.
"""

from __future__ import annotations

import ast
import copy

from kernelwright.policies.inductor.syntax import argument_names
from kernelwright.policies.inductor.writing.expressions.tidying import simplify_conversion
from kernelwright.policies.inductor.writing.plain import (
    assignments,
    count_reads,
    drop_unused,
    statement_lists,
)

CHANGES_SHAPE = {
    "reshape", "trans", "full", "zeros", "broadcast_to", "sum", "dot", "max", "min", "reduce", "cumsum", "view",
    "associative_scan", "expand_dims", "permute", "argmax", "argmin", "join", "split", "cat",
}  # fmt: skip
"""Functions of triton.language an operand with other axes cannot be made through."""


class _NotFlat(Exception):
    """Raised for an operand of unsupported form."""


def flat_products(function: ast.FunctionDef) -> None:
    """Rewrites the operands of every product, in place; unsupported products are unchanged."""
    for dot in [
        n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.dot"
    ]:
        # If an operand cannot be rewritten, the kernel keeps its original statements.
        trial = copy.deepcopy(function.body)
        try:
            dot.args[:2] = [
                _flat(function, operand, side)
                for operand, side in zip(dot.args, _SIDES, strict=False)
            ]
        except _NotFlat:
            function.body = trial
            ast.fix_missing_locations(function)
            return
    drop_unused(function)
    _without_second_masks(function)
    _old_names(function)
    ast.fix_missing_locations(function)


def _without_second_masks(function: ast.FunctionDef) -> None:
    """Replaces an operand `tl.where(mask, x, 0)` by x if x was loaded under that mask with 0
    elsewhere.

    The operand then need not pass through registers before the product.
    """
    defined = dict(assignments(function))
    for dot in [n for n in ast.walk(function) if _is_call(n, "dot")]:
        assert isinstance(dot, ast.Call)
        for position, operand in enumerate(dot.args[:2]):
            if (
                not _is_call(operand, "where")
                or not isinstance(operand, ast.Call)
                or len(operand.args) != 3
            ):
                continue
            mask, value, other = operand.args
            load = defined.get(value.id) if isinstance(value, ast.Name) else None
            if (
                ast.unparse(other) in ("0", "0.0")
                and isinstance(load, ast.Call)
                and _is_call(load, "load")
            ):
                under = [ast.unparse(a) for a in load.args[1:2]] or [""]
                outside = [ast.unparse(k.value) for k in load.keywords if k.arg == "other"]
                if ast.unparse(mask) in under[0].split(" & ") and outside == ["0.0"]:
                    dot.args[position] = value


_SIDES = ("left", "right")


def _old_names(function: ast.FunctionDef) -> None:
    """Renames `left_x` back to x if the name x is free."""
    assigned_names = {name for name, _ in assignments(function)} | argument_names(function)
    candidates: dict[str, list[str]] = {}
    for name in assigned_names:
        side, _, old = name.partition("_")
        if side in _SIDES and old.isidentifier() and old not in assigned_names:
            candidates.setdefault(old, []).append(name)
    new = {names[0]: old for old, names in candidates.items() if len(names) == 1}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)


def _flat(function: ast.FunctionDef, operand: ast.expr, side: str) -> ast.expr:
    """The operand with two axes. Raises _NotFlat."""
    defined = dict(assignments(function))
    turned, value = False, operand
    while True:
        if (
            isinstance(value, ast.Name)
            and value.id in defined
            and _is_call(defined[value.id], "trans", "reshape")
        ):
            value = defined[value.id]
        elif _is_call(value, "trans") and isinstance(value, ast.Call) and len(value.args) == 1:
            turned, value = not turned, value.args[0]
        else:
            break
    if not isinstance(value, ast.Call) or not _is_call(value, "reshape") or len(value.args) != 2:
        raise _NotFlat
    shape = [ast.unparse(e) for e in getattr(value.args[1], "elts", [])]
    # Axes are recognized by their extents, so equal extents are ambiguous.
    if len(shape) != 2 or shape[0] == shape[1]:
        raise _NotFlat
    return _Orienting(function, side, shape[::-1] if turned else shape).of(value.args[0])


def _one_element(node: ast.Call) -> ast.expr | None:
    """The element of `tl.broadcast_to(scale, [1, 1, 1])` and of `tl.full([1, 1, 1], 6.0, tl.float32)`: any shape
    broadcasts with it; None for every other call.
    """
    if len(node.args) < 2 or not _is_call(node, "broadcast_to", "full"):
        return None
    element, shape = node.args[:2] if _is_call(node, "broadcast_to") else node.args[1::-1]
    sizes = getattr(shape, "elts", [])
    return element if sizes and all(ast.unparse(size) == "1" for size in sizes) else None


def _stored_otherwise(function: ast.FunctionDef) -> set[str]:
    """Returns names bound by other statements than plain assignments: `x += y`, the variable of a loop."""
    plain = {
        id(t)
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and len(n.targets) == 1
        for t in n.targets
    }
    stored = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    return {n.id for n in stored if id(n) not in plain}


def _is_call(value: ast.AST, *names: str) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in {
        f"tl.{name}" for name in names
    }


class _Orienting:
    """Copies the computation of an operand with the matrix's rows as first axis and its columns
    as second.
    """

    def __init__(self, function: ast.FunctionDef, side: str, shape: list[str]) -> None:
        self._function, self._side, self.shape = function, side, shape
        values: dict[str, dict[str, ast.expr]] = {}
        for name, value in assignments(function):
            values.setdefault(name, {})[ast.unparse(value)] = value
        again = _stored_otherwise(function)
        self._defined = {
            n: next(iter(v.values())) for n, v in values.items() if len(v) == 1 and n not in again
        }
        self._assigned_names = {*values, *again}
        self._changing = {
            name: list(v.values()) for name, v in values.items() if name not in self._defined
        }
        self._shaped: dict[str, bool] = {}
        self._matrices: dict[str, ast.expr] = {}

    def of(self, value: ast.expr) -> ast.expr:
        """Returns the copied expression. Raises _NotFlat."""
        oriented: ast.expr = _Copying(self).visit(copy.deepcopy(value))
        return oriented

    def subscript(self, node: ast.Subscript) -> ast.expr:
        """`tl.arange(0, ROW_BLOCK)[:, None, None]` as a row or a column of the matrix."""
        value = node.value
        if not isinstance(value, ast.Call) or not _is_call(value, "arange") or len(value.args) != 2:
            raise _NotFlat
        extent = ast.unparse(value.args[1])
        if extent not in self.shape:
            raise _NotFlat
        axes = ":, None" if self.shape.index(extent) == 0 else "None, :"
        return ast.parse(f"{ast.unparse(value)}[{axes}]", mode="eval").body

    def name(self, node: ast.Name) -> ast.expr:
        """Returns the name of a value as a matrix; the name itself for values without axes."""
        if not self._is_shaped(node.id):
            return node
        if node.id not in self._matrices:
            value = self.of(self._defined[node.id])
            if isinstance(value, ast.Constant):
                self._matrices[node.id] = value
            else:
                self._matrices[node.id] = ast.Name(self._assigned(node.id, value), ast.Load())
        return copy.deepcopy(self._matrices[node.id])

    def _assigned(self, old: str, value: ast.expr) -> str:
        """Returns the name of the matrix form of `old` on this side, shared with earlier products
        of the kernel.
        """
        base_name = name = f"{self._side}_{old}"
        number = 1
        while name in self._assigned_names:
            if name in self._defined and ast.unparse(self._defined[name]) == ast.unparse(value):
                return name
            number += 1
            name = f"{base_name}_{number}"
        assignment = ast.Assign([ast.Name(name, ast.Store())], value)
        self._insert_after(old, ast.fix_missing_locations(assignment))
        return name

    def _is_shaped(self, name: str) -> bool:
        """Returns whether a name has axes to be rearranged. Raises _NotFlat for a name with
        several values.
        """
        if name not in self._shaped:
            # Guards against cycles: a name that is being examined counts as without axes.
            self._shaped[name] = False
            changing = self._changing.get(name, [])
            if any(self._has_axes(value) for value in changing):
                raise _NotFlat
            self._shaped[name] = name in self._defined and self._has_axes(self._defined[name])
        return self._shaped[name]

    def _has_axes(self, value: ast.expr) -> bool:
        has_own_axes = any(
            isinstance(n, ast.Subscript) or _is_call(n, *CHANGES_SHAPE) for n in ast.walk(value)
        )
        return has_own_axes or any(self._is_shaped(read) for read in count_reads(value))

    def _insert_after(self, name: str, statement: ast.Assign) -> None:
        """Inserts the lines after each assignment of the name: a kernel with several products makes its steps in
        several loops.
        """
        is_inserted = False
        for body in statement_lists(self._function):
            for position in range(len(body) - 1, -1, -1):
                current = body[position]
                targets = current.targets if isinstance(current, ast.Assign) else []
                if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
                    body.insert(position + 1, copy.deepcopy(statement))
                    is_inserted = True
        if not is_inserted:
            raise _NotFlat


class _Copying(ast.NodeTransformer):
    def __init__(self, orienting: _Orienting) -> None:
        self._orienting = orienting

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._orienting.subscript(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if (element := _one_element(node)) is not None:
            visited: ast.expr = self.visit(element)
            return visited
        if (
            _is_call(node, "broadcast_to")
            and len(node.args) == 2
            and len(getattr(node.args[1], "elts", [])) > 2
        ):
            node.args[1] = ast.parse(f"[{', '.join(self._orienting.shape)}]", mode="eval").body
            node.args[0] = self.visit(node.args[0])
            return node
        if _is_call(node, *CHANGES_SHAPE):
            raise _NotFlat
        if not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "to"
            and isinstance(node.func.value, ast.Constant)
        ):
            return simplify_conversion(node, node.func)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._orienting.name(node) if isinstance(node.ctx, ast.Load) else node
