"""Small simplifications of a kernel's expressions, each of which leaves its values as they are."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from kernelwright.policies.inductor.writing.expressions.sums import ARITHMETIC_OPERATOR, plain_sum

INDEX = re.compile(r"([xyz]|r\d_)(index|\d+)$")
"""Inductor's names for places of elements, which are whole numbers."""
SIZE = re.compile(r"ks\d+$|([xyz]|r\d_)numel$")
"""Names of sizes the host passes."""
ACCUMULATOR = re.compile(r"_tmp\d+$")
EXTREMUM_HELPERS = ("maximum", "minimum")
"""Helpers that broadcast their operands."""


def tidy_kernel(function: ast.FunctionDef) -> ast.FunctionDef:
    """Simplifies a kernel in place.

    Removes conversions of compared values, constant tensors replaceable by numbers, and
    conditions that always hold.
    """
    _Tidying(function).visit(function)
    return ast.fix_missing_locations(function)


def _values_of(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Returns the value assigned to each name."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For) and isinstance(
            node.target, ast.Name
        ):
            values.setdefault(node.target.id, []).append(ast.Name("changing", ast.Load()))
    return values


def _constants_of(values_of_name: dict[str, list[ast.expr]]) -> dict[str, ast.Call]:
    """Returns the names assigned the same constant tensor everywhere."""
    return {
        name: values[0]
        for name, values in values_of_name.items()
        if isinstance(values[0], ast.Call)
        and _calls(values[0], "tl.full")
        and len({ast.unparse(v) for v in values}) == 1
        and not ACCUMULATOR.match(name)
    }


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == name


def _is_index(node: ast.expr) -> bool:
    """Whether it is whole numbers by its text alone: places of elements, sizes, and arithmetic of them."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_index(node.operand)
    if isinstance(node, ast.Name):
        return bool(INDEX.match(node.id) or SIZE.match(node.id))
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("floor_divide", "remainder") and all(
            map(_is_index, node.args)
        )
    if isinstance(node, ast.BinOp):
        return (
            isinstance(node.op, ARITHMETIC_OPERATOR)
            and _is_index(node.left)
            and _is_index(node.right)
        )
    return False


def _plain(number: ast.expr) -> ast.expr:
    """Returns zeros as the integer 0, which keeps the other operand's type: 0.0 would turn an
    index into a float.
    """
    nought = (
        isinstance(number, ast.Constant)
        and number.value == 0
        and not isinstance(number.value, bool)
    )
    return ast.Constant(0) if nought else number


_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


class _Tidying(ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef) -> None:
        values = _values_of(function)
        self._constants = _constants_of(values)
        self._once = {name: assigned[0] for name, assigned in values.items() if len(assigned) == 1}
        """Values of names with a single assignment."""

    def _full(self, node: ast.expr) -> ast.Call | None:
        """Returns the `tl.full` behind an expression or name."""
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        return node if isinstance(node, ast.Call) and _calls(node, "tl.full") else None

    def _number(self, node: ast.expr, other: ast.expr) -> ast.expr | None:
        """Returns the value of a constant tensor if the other operand determines the type."""
        full = self._full(node)
        if full is None or len(full.args) != 3 or self._full(other) is not None:
            return None
        dtype = ast.unparse(full.args[2])
        if dtype in ("tl.float32", "tl.int32"):
            return full.args[1]
        if dtype == "tl.int64" and not self._is_narrow_index(other):
            return full.args[1]
        return (
            _plain(full.args[1])
            if isinstance(other, ast.Name) and dtype == f"{other.id}.dtype"
            else None
        )

    def _is_narrow_index(self, node: ast.expr) -> bool:
        """Whether an operand is index arithmetic, which Triton does in 32 bits: only the constant
        beside it makes the result int64, and the identity of a minimum over int64 needs that.
        """
        assigned = self._once.get(node.id) if isinstance(node, ast.Name) else None
        return _is_index(node) or (assigned is not None and _is_index(assigned))

    def _truth(self, node: ast.expr) -> bool | None:
        """Returns True or False for a condition with the same value everywhere; else None."""
        if isinstance(node, ast.Name) and isinstance(self._once.get(node.id), ast.Compare):
            return self._truth(self._once[node.id])
        if isinstance(node, ast.Compare):
            return self._compared(node)
        value = self._held(node)
        return value if isinstance(value, bool) else None

    def _compared(self, node: ast.Compare) -> bool | None:
        """Returns the result of comparing two constants; a truth value compared with 0 is
        negated.
        """
        compared, right = _COMPARED.get(type(node.ops[0])), self._held(node.comparators[0])
        left = self._held(node.left)
        if left is None and isinstance(node.left, ast.Compare | ast.Name):
            left = self._truth(node.left)
        if len(node.ops) > 1 or compared is None or left is None or right is None:
            return None
        return compared(left, right)

    def _held(self, node: ast.expr) -> bool | int | float | None:
        """Returns the number or truth value in a constant, or in a constant tensor."""
        full = self._full(node)
        held = node if full is None else full.args[1]
        negative = isinstance(held, ast.UnaryOp) and isinstance(held.op, ast.USub)
        if negative and isinstance(held, ast.UnaryOp):
            held = held.operand
        value = held.value if isinstance(held, ast.Constant) else None
        if negative and isinstance(value, int | float):
            return -value
        return value if isinstance(value, bool | int | float) else None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "tl.where" and len(node.args) == 3:
            return self._simplified_where(node)
        if name in EXTREMUM_HELPERS and len(node.args) == 2:
            return self._combined(node, name)
        if (
            name == "tl.load"
            and ast.unparse(node.args[0]).endswith(" + 0")
            and isinstance(node.args[0], ast.BinOp)
        ):
            node.args[0] = node.args[0].left
        if name.endswith(".to") and isinstance(node.func, ast.Attribute):
            return simplify_conversion(node, node.func)
        if name.endswith(".broadcast_to") and isinstance(node.func, ast.Attribute):
            full = self._full(node.func.value)
            if full is not None and ast.unparse(full.args[1]) == "0":
                shape = ", ".join(map(ast.unparse, node.args))
                return ast.parse(
                    f"tl.zeros([{shape}], {ast.unparse(full.args[2])})", mode="eval"
                ).body
        return node

    def _simplified_where(self, node: ast.Call) -> ast.expr:
        condition, yes, no = node.args
        # `where` with a condition that always holds is one of its branches.
        if (truth := self._truth(condition)) is not None and self._same_form(yes, no):
            return yes if truth else no
        if (
            isinstance(yes, ast.Call)
            and _calls(yes, "tl.where")
            and ast.dump(yes.args[0]) == ast.dump(condition)
        ):
            yes = node.args[1] = yes.args[1]
        # Two constant branches become numbers if the result keeps its type.
        if (numbers := self._two_numbers(yes, no)) is not None:
            node.args[1:] = numbers
        for position, value, other in ((1, yes, no), (2, no, yes)):
            if (number := self._number(value, other)) is not None:
                node.args[position] = number
        return node

    def _two_numbers(self, yes: ast.expr, no: ast.expr) -> list[ast.expr] | None:
        """Returns the numbers in two constant tensors if plain numbers have the same type."""
        yes_full, no_full = self._full(yes), self._full(no)
        if yes_full is None or no_full is None or len(yes_full.args) != 3 or len(no_full.args) != 3:
            return None
        dtype, second = ast.unparse(yes_full.args[2]), ast.unparse(no_full.args[2])
        same = second == dtype or (isinstance(yes, ast.Name) and second == f"{yes.id}.dtype")
        kind = {"tl.float32": float, "tl.int32": int}.get(dtype)
        held = [self._held(value) for value in (yes_full, no_full)]
        numbers = [v for v in held if kind is not None and type(v) is kind]
        return [ast.Constant(v) for v in numbers] if same and len(numbers) == 2 else None

    def _same_form(self, first: ast.expr, second: ast.expr) -> bool:
        """Whether both are loads from the same places of two tensors: either may stand for a choice between them."""
        addresses = []
        for node in (first, second):
            load = self._once.get(node.id) if isinstance(node, ast.Name) else node
            if not (
                isinstance(load, ast.Call)
                and _calls(load, "tl.load")
                and isinstance(load.args[0], ast.BinOp)
            ):
                return False
            addresses.append(ast.dump(load.args[0].right))
        return addresses[0] == addresses[1]

    def _combined(self, node: ast.Call, name: str) -> ast.expr:
        """`maximum(x, 0)`: the number last."""
        first, second = node.args
        if (number := self._number(first, second)) is not None:
            node.args = [second, number]
        elif (number := self._number(second, first)) is not None:
            node.args[1] = number
        elif isinstance(first, ast.Name) and ACCUMULATOR.match(first.id):
            node.args[1] = _without_broadcast(second)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        for operand, other in ((node.left, node.right), (node.right, node.left)):
            truth = self._truth(operand)
            neutral = {ast.BitOr: False, ast.BitAnd: True}.get(type(node.op))
            if truth is not None and truth is neutral:
                return other
        if isinstance(node.left, ast.Name) and ACCUMULATOR.match(node.left.id):
            node.right = _without_broadcast(node.right)
        return _largest(node) or plain_sum(node, _is_index)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        node.left = self._unconverted(node.left)
        node.comparators = [self._unconverted(c) for c in node.comparators]
        return node

    def _unconverted(self, node: ast.expr) -> ast.expr:
        """Drops casts of compared indices and sizes to a wider type."""
        assigned = self._once.get(node.id) if isinstance(node, ast.Name) else None
        value = _before_conversion(assigned if assigned is not None else node)
        by_name = assigned is not None and not isinstance(value, ast.Name)
        return node if value is None or by_name else value


def _without_broadcast(node: ast.expr) -> ast.expr:
    """Returns an operand without its broadcast; combined with an accumulator the broadcast is
    implicit.
    """
    return node.args[0] if isinstance(node, ast.Call) and _calls(node, "tl.broadcast_to") else node


def _before_conversion(node: ast.expr) -> ast.expr | None:
    """Returns the operand of an integer conversion if the operand is an integer index already;
    else None.
    """
    if not isinstance(node, ast.Call) or not node.args:
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        value, dtype = node.func.value, node.args[0]
    elif _calls(node, "tl.cast") and len(node.args) == 2:
        value, dtype = node.args
    else:
        return None
    if isinstance(value, ast.Call) and (inner := _before_conversion(value)) is not None:
        value = inner
    return value if ast.unparse(dtype) in ("tl.int32", "tl.int64") and _is_index(value) else None


def _largest(node: ast.BinOp) -> ast.expr | None:
    """`a * (a >= b) + b * (b > a)`, which is how Inductor writes the larger of two sizes."""
    match = re.fullmatch(r"(.+) \* \((.+) >= (.+)\) \+ (.+) \* \((.+) > (.+)\)", ast.unparse(node))
    if not match:
        return None
    a, a2, b, b2, b3, a3 = match.groups()
    same = a == a2 == a3 and b == b2 == b3
    return ast.parse(f"tl.maximum({a}, {b})", mode="eval").body if same else None


def simplify_conversion(node: ast.Call, function: ast.Attribute) -> ast.expr:
    """Simplifies a conversion.

    A size may be a plain number, which has no `to` but can be multiplied. Double conversions
    become single ones.
    """
    inner = function.value
    if isinstance(inner, ast.Constant) and isinstance(inner.value, int | float):
        return _converted_number(inner.value, node)
    if (
        isinstance(inner, ast.Name)
        and inner.id.startswith("ks")
        and ast.unparse(node.args[0]).startswith("tl.int")
    ):
        return inner
    if (
        isinstance(inner, ast.Name)
        and inner.id.startswith("ks")
        and ast.unparse(node.args[0]) == "tl.float32"
    ):
        return ast.parse(f"{inner.id} * 1.0", mode="eval").body
    if ast.unparse(node.args[0]) == "tl.float32" and re.fullmatch(
        r"ks\d+ \* 1\.0", ast.unparse(inner)
    ):
        return inner
    if _of_sizes(
        inner
    ):  # Triton makes a constant of an argument that is 1, and a constant has no `to`
        return ast.parse(
            f"tl.cast({ast.unparse(inner)}, {ast.unparse(node.args[0])})", mode="eval"
        ).body
    converted = isinstance(inner, ast.Call) and (
        ast.unparse(inner.func).endswith(".to") or _calls(inner, "tl.cast")
    )
    if (
        converted
        and isinstance(inner, ast.Call)
        and ast.dump(inner.args[-1]) == ast.dump(node.args[0])
    ):
        return inner
    return node


def _converted_number(value: int | float, node: ast.Call) -> ast.expr:
    """Returns a converted number: a plain number, except for narrow and unsigned types."""
    dtype = ast.unparse(node.args[0])
    if dtype in ("tl.int32", "tl.int64") and isinstance(value, int):
        return ast.Constant(value)
    if dtype == "tl.float32":
        return ast.Constant(float(value))
    return ast.parse(f"tl.cast({value!r}, {dtype})", mode="eval").body


def _of_sizes(value: ast.expr) -> bool:
    """Whether it is arithmetic of sizes the host passes, and of nothing else."""
    nodes = list(ast.walk(value))
    parts = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.Load)
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    return (
        bool(names)
        and all(isinstance(n, parts) for n in nodes)
        and all(re.fullmatch(r"ks\d+", n) for n in names)
    )


def use_augmented_assignments(function: ast.FunctionDef) -> None:
    """Rewrites `total = total + x` as `total += x`, in place."""
    _Augmented().visit(function)


class _Augmented(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target, value = node.targets[0], node.value
        if (
            len(node.targets) != 1
            or not isinstance(target, ast.Name)
            or not isinstance(value, ast.BinOp)
        ):
            return node
        if ast.unparse(value.left) == target.id:
            return ast.copy_location(ast.AugAssign(target, value.op, value.right), node)
        return node
