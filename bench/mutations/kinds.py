"""Kinds of mutation: one function for each, which yields the changed forms of one syntax node of a kernel.

The kinds are split into two halves by a fixed rule (`half_of`): the draws of the judge are developed against one half,
and the score of the other half is what is reported.

Example: `swapped_comparison` turns the node of `offsets < columns` into the node of `offsets <= columns`.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Iterator

Kind = Callable[[ast.AST], Iterator[ast.AST]]

ARITHMETIC = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Div),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
}
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
NARROWER = {
    "float64": "float32",
    "float32": "float16",
    "int64": "int32",
    "int32": "int16",
    "bfloat16": "float8e5",
}
FUNCTIONS = {
    "exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "sin": "cos",
    "cos": "sin", "maximum": "minimum", "minimum": "maximum", "floor": "ceil", "ceil": "floor", "cdiv": "floordiv",
}  # fmt: skip
REDUCTIONS = {
    "sum": "max",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "cumsum": "cumprod",
}
SCALES = (1.01, 2.0)
"""Factors of floating constants."""


def half_of(kind: str) -> str:
    """Returns `develop` or `report`: kinds in the order of their SHA-256 fall into the halves in turns."""
    ranked = sorted(KINDS, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return ("develop", "report")[ranked.index(kind) % 2]


def _called(node: ast.AST) -> str:
    """The last name of the function that a call calls; empty for any other node."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def swapped_arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces an arithmetic operator by another."""
    if isinstance(node, ast.BinOp):
        for operator in ARITHMETIC.get(type(node.op), ()):
            yield ast.BinOp(node.left, operator(), node.right)


def swapped_comparison(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces a comparison by one that differs at equality, or by the opposite one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [operator()], node.comparators)


def shifted_integer(node: ast.AST) -> Iterator[ast.AST]:
    """Adds or subtracts one from an integer constant."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        if node.value > 0:
            yield ast.Constant(node.value - 1)


def scaled_float(node: ast.AST) -> Iterator[ast.AST]:
    """Multiplies a floating constant, or replaces a zero by a small number."""
    if isinstance(node, ast.Constant) and type(node.value) is float:
        for factor in SCALES:
            yield ast.Constant(node.value * factor if node.value else 1e-3 * factor)


def dropped_mask(node: ast.AST) -> Iterator[ast.AST]:
    """Removes the mask of a load or a store."""
    if _called(node) in ("load", "store") and isinstance(node, ast.Call):
        kept = [k for k in node.keywords if k.arg not in ("mask", "other")]
        if len(kept) < len(node.keywords):
            yield ast.Call(node.func, node.args, kept)


def dropped_conjunct(node: ast.AST) -> Iterator[ast.AST]:
    """Keeps one side of `a & b`, `a and b`, or replaces `&` by `|`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        yield node.left
        yield node.right
        yield ast.BinOp(node.left, ast.BitOr(), node.right)
    elif isinstance(node, ast.BoolOp):
        yield from node.values


def later_loop_start(node: ast.AST) -> Iterator[ast.AST]:
    """Leaves out the first step of a loop."""
    if _called(node) in ("range", "static_range") and isinstance(node, ast.Call) and node.args:
        bounds = node.args if len(node.args) > 1 else [ast.Constant(0), *node.args]
        step = bounds[2] if len(bounds) > 2 else ast.Constant(1)
        yield ast.Call(
            node.func, [ast.BinOp(bounds[0], ast.Add(), step), *bounds[1:]], node.keywords
        )


def earlier_loop_end(node: ast.AST) -> Iterator[ast.AST]:
    """Ends a loop one step or one element too early."""
    if _called(node) in ("range", "static_range") and isinstance(node, ast.Call) and node.args:
        at = min(len(node.args) - 1, 1)
        steps = [ast.Constant(1), *([node.args[2]] if len(node.args) > 2 else [])]
        for step in steps:
            bounds = [*node.args]
            bounds[at] = ast.BinOp(bounds[at], ast.Sub(), step)
            yield ast.Call(node.func, bounds, node.keywords)


def narrower_type(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces a type by a narrower one, or drops a conversion."""
    if isinstance(node, ast.Attribute) and node.attr in NARROWER:
        yield ast.Attribute(node.value, NARROWER[node.attr], node.ctx)
    if (
        _called(node) == "to"
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
    ):
        yield node.func.value


def swapped_operands(node: ast.AST) -> Iterator[ast.AST]:
    """Swaps the operands of a subtraction, a division or a remainder."""
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod
    ):
        yield ast.BinOp(node.right, node.op, node.left)


def swapped_branches(node: ast.AST) -> Iterator[ast.AST]:
    """Swaps the two values of a `where`, or takes one of them everywhere."""
    if _called(node) == "where" and isinstance(node, ast.Call) and len(node.args) == 3:
        condition, first, second = node.args
        yield ast.Call(node.func, [condition, second, first], node.keywords)
        yield first


def changed_filling(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces what masked lanes of a load hold: 0 for minus infinity and for one, 1 for any other value."""
    if not isinstance(node, ast.Call) or not any(k.arg == "other" for k in node.keywords):
        return
    changed = copy.deepcopy(node)
    filling = next(k for k in changed.keywords if k.arg == "other")
    text = ast.unparse(filling.value)
    filling.value = ast.Constant(0.0 if "inf" in text or text in ("1", "1.0") else 1)
    yield changed


def dropped_update(node: ast.AST) -> Iterator[ast.AST]:
    """Drops an augmented assignment, or assigns where it updated."""
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()
        yield ast.Assign([node.target], node.value, lineno=node.lineno)


def replaced_reduction(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces a reduction or a scan by another."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in REDUCTIONS
    ):
        yield ast.Call(
            ast.Attribute(node.func.value, REDUCTIONS[node.func.attr]), node.args, node.keywords
        )


def replaced_function(node: ast.AST) -> Iterator[ast.AST]:
    """Replaces a function of elements by a related one, or drops an absolute value."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr in FUNCTIONS:
        yield ast.Call(
            ast.Attribute(node.func.value, FUNCTIONS[node.func.attr]), node.args, node.keywords
        )
    if node.func.attr == "abs" and node.args:
        yield node.args[0]


def negated_condition(node: ast.AST) -> Iterator[ast.AST]:
    """Negates the condition of a branch, or a sign."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield node.operand


def changed_start(node: ast.AST) -> Iterator[ast.AST]:
    """Lets an accumulator begin at another value."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr == "zeros" and node.args:
        full = ast.Attribute(node.func.value, "full")
        yield ast.Call(full, [node.args[0], ast.Constant(1), *node.args[1:]], node.keywords)
    elif node.func.attr == "full" and len(node.args) > 1:
        yield ast.Call(node.func, [node.args[0], ast.Constant(0), *node.args[2:]], node.keywords)


def changed_axis(node: ast.AST) -> Iterator[ast.AST]:
    """Takes another axis of the grid or of a reduction."""
    if not isinstance(node, ast.Call):
        return
    changed = copy.deepcopy(node)
    axis = next((k.value for k in changed.keywords if k.arg == "axis"), None)
    if axis is None and _called(node) in ("program_id", "num_programs") and changed.args:
        axis = changed.args[0]
    if isinstance(axis, ast.Constant) and type(axis.value) is int:
        axis.value = 0 if axis.value else 1
        yield changed


def dropped_order(node: ast.AST) -> Iterator[ast.AST]:
    """Drops a barrier, or stores where an atomic operation added."""
    if isinstance(node, ast.Expr) and _called(node.value) == "debug_barrier":
        yield ast.Pass()
    if isinstance(node, ast.Expr) and _called(node.value).startswith("atomic_"):
        call = copy.deepcopy(node.value)
        assert isinstance(call, ast.Call)
        if isinstance(call.func, ast.Attribute):
            call.func.attr = "store"
            call.keywords = [k for k in call.keywords if k.arg == "mask"]
            yield ast.Expr(call)


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        swapped_arithmetic, swapped_comparison, shifted_integer, scaled_float, dropped_mask, dropped_conjunct,
        later_loop_start, earlier_loop_end, narrower_type, swapped_operands, swapped_branches, changed_filling,
        dropped_update, replaced_reduction, replaced_function, negated_condition, changed_start, changed_axis,
        dropped_order,
    )
}  # fmt: skip
