"""Operands of `tl.dot` loaded as matrices. Inductor loads them with three or four axes and reshapes them, and what is
reshaped goes from shared memory through registers and back before it is multiplied.
"""

from __future__ import annotations

import ast
import copy

from kernelwright.policies.inductor.writing.plain import assignments, bodies, drop_unused, uses

CHANGES_SHAPE = {
    "reshape", "trans", "full", "zeros", "broadcast_to", "sum", "dot", "max", "min", "reduce", "cumsum", "view",
    "associative_scan", "expand_dims", "permute", "argmax", "argmin", "join", "split", "cat",
}  # fmt: skip
"""Functions of triton.language that an operand with other axes cannot be made through."""


class _NotFlat(Exception):
    """The operand is made in a way that is not known here."""


def flat_products(function: ast.FunctionDef) -> None:
    """Rewrites the operands of every product, in place; a product that is not understood is left as it is."""
    for dot in [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.dot"]:
        trial = copy.deepcopy(function.body)
        try:
            dot.args[:2] = [_flat(function, operand, side) for operand, side in zip(dot.args, _SIDES, strict=False)]
        except _NotFlat:
            function.body = trial
            ast.fix_missing_locations(function)
            return
    drop_unused(function)
    _without_second_masks(function)
    _old_names(function)
    ast.fix_missing_locations(function)


def _without_second_masks(function: ast.FunctionDef) -> None:
    """`tl.where(mask, x, 0)` of a product's operand is x where x was loaded under that mask and is nought elsewhere:
    what was loaded then need not go through registers before it is multiplied.
    """
    defined = dict(assignments(function))
    for dot in [n for n in ast.walk(function) if _is_call(n, "dot")]:
        assert isinstance(dot, ast.Call)
        for place, operand in enumerate(dot.args[:2]):
            if not _is_call(operand, "where") or not isinstance(operand, ast.Call) or len(operand.args) != 3:
                continue
            mask, value, other = operand.args
            load = defined.get(value.id) if isinstance(value, ast.Name) else None
            if ast.unparse(other) in ("0", "0.0") and isinstance(load, ast.Call) and _is_call(load, "load"):
                under = [ast.unparse(a) for a in load.args[1:2]] or [""]
                outside = [ast.unparse(k.value) for k in load.keywords if k.arg == "other"]
                if ast.unparse(mask) in under[0].split(" & ") and outside == ["0.0"]:
                    dot.args[place] = value


_SIDES = ("left", "right")


def _old_names(function: ast.FunctionDef) -> None:
    """`left_x` is called x where nothing else is any more."""
    there = {name for name, _ in assignments(function)} | {a.arg for a in function.args.args}
    wanted: dict[str, list[str]] = {}
    for name in there:
        side, _, old = name.partition("_")
        if side in _SIDES and old.isidentifier() and old not in there:
            wanted.setdefault(old, []).append(name)
    new = {names[0]: old for old, names in wanted.items() if len(names) == 1}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)


def _flat(function: ast.FunctionDef, operand: ast.expr, side: str) -> ast.expr:
    """The operand with two axes. Raises _NotFlat."""
    defined = dict(assignments(function))
    turned, value = False, operand
    while True:
        if isinstance(value, ast.Name) and value.id in defined and _is_call(defined[value.id], "trans", "reshape"):
            value = defined[value.id]
        elif _is_call(value, "trans") and isinstance(value, ast.Call) and len(value.args) == 1:
            turned, value = not turned, value.args[0]
        else:
            break
    if not isinstance(value, ast.Call) or not _is_call(value, "reshape") or len(value.args) != 2:
        raise _NotFlat
    shape = [ast.unparse(e) for e in getattr(value.args[1], "elts", [])]
    if len(shape) != 2 or shape[0] == shape[1]:
        raise _NotFlat
    return _Orienting(function, side, shape[::-1] if turned else shape).of(value.args[0])


def _of_one_element(node: ast.Call) -> bool:
    """`tl.broadcast_to(scale, [1, 1, 1])`: any shape broadcasts with the element itself."""
    if not _is_call(node, "broadcast_to") or len(node.args) != 2:
        return False
    sizes = getattr(node.args[1], "elts", [])
    return bool(sizes) and all(ast.unparse(size) == "1" for size in sizes)


def _is_call(value: ast.AST, *names: str) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in {f"tl.{name}" for name in names}


class _Orienting:
    """Copies of what an operand is made from, with the rows of one matrix first and its columns second."""

    def __init__(self, function: ast.FunctionDef, side: str, shape: list[str]) -> None:
        self._function, self._side, self.shape = function, side, shape
        counts: dict[str, int] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts[node.id] = counts.get(node.id, 0) + 1
        self._defined = {name: value for name, value in assignments(function) if counts[name] == 1}
        self._shaped: dict[str, bool] = {}
        self._made: dict[str, str] = {}

    def of(self, value: ast.expr) -> ast.expr:
        """Raises _NotFlat."""
        made: ast.expr = _Copying(self).visit(copy.deepcopy(value))
        return made

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
        if not self._is_shaped(node.id):
            return node
        if node.id not in self._made:
            self._made[node.id] = f"{self._side}_{node.id}"
            if self._made[node.id] in self._defined:
                raise _NotFlat
            value = self.of(self._defined[node.id])
            made = ast.Assign([ast.Name(self._made[node.id], ast.Store())], value)
            self._insert_after(node.id, ast.fix_missing_locations(made))
        return ast.Name(self._made[node.id], ast.Load())

    def _is_shaped(self, name: str) -> bool:
        """Whether a name has axes that a matrix has otherwise. Raises _NotFlat for what is assigned again."""
        if name not in self._shaped:
            self._shaped[name] = False
            value = self._defined.get(name)
            if value is not None:
                own = any(isinstance(n, ast.Subscript) or _is_call(n, "broadcast_to") for n in ast.walk(value))
                self._shaped[name] = own or any(self._is_shaped(read) for read in uses(value))
        return self._shaped[name]

    def _insert_after(self, name: str, statement: ast.Assign) -> None:
        for body in bodies(self._function):
            for place, one in enumerate(body):
                targets = one.targets if isinstance(one, ast.Assign) else []
                if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
                    body.insert(place + 1, statement)
                    return
        raise _NotFlat


class _Copying(ast.NodeTransformer):
    def __init__(self, orienting: _Orienting) -> None:
        self._orienting = orienting

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._orienting.subscript(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _of_one_element(node):
            made: ast.expr = self.visit(node.args[0])
            return made
        if _is_call(node, "broadcast_to") and len(node.args) == 2 and len(getattr(node.args[1], "elts", [])) > 2:
            node.args[1] = ast.parse(f"[{', '.join(self._orienting.shape)}]", mode="eval").body
            node.args[0] = self.visit(node.args[0])
            return node
        if _is_call(node, *CHANGES_SHAPE):
            raise _NotFlat
        if not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._orienting.name(node) if isinstance(node.ctx, ast.Load) else node
