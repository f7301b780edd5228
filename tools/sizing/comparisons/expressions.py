"""Evaluates the arithmetic of a candidate's text, as a syntax tree and without running it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

Number = int | float
LARGEST = 1 << 40
"""Largest magnitude of a number: larger ones are no sizes."""
MAX_EXPONENT = 40
KEPT_TEXT = "kept_text"
"""Attribute of a node that holds its text."""
MAX_EVALUATION_DEPTH = 12
"""Nesting of an expression that is evaluated."""


class NotANumber(Exception):
    """Raised for an expression that is no arithmetic of numbers, or leaves their range."""


def constant_value(node: ast.AST) -> int | None:
    """Returns the whole number that arithmetic on literals gives, from 0 to 2**40; None for anything else."""
    try:
        value = evaluate(node, {})
    except NotANumber:
        return None
    return int(value) if value >= 0 and value == int(value) else None


def evaluate(
    node: ast.AST, variables: Mapping[str, int], depth: int = MAX_EVALUATION_DEPTH
) -> Number:
    """Returns the value of an expression; a comparison gives 0 or 1.

    variables: the value of each opaque part, by its text (`rows`, `x.shape[0]`). Raises NotANumber.
    """
    if not depth:
        raise NotANumber
    if isinstance(node, ast.Constant):
        return _literal(node.value)
    if variables and isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        text = text_of(node)
        if text in variables:
            return variables[text]
    value = _composed(node, lambda part: evaluate(part, variables, depth - 1))
    if not -LARGEST <= value <= LARGEST:
        raise NotANumber
    return value


def text_of(node: ast.AST) -> str:
    """Returns the text of an expression, which is written once and kept with the node.

    The search for sizes evaluates a candidate's comparisons some thousand times; writing texts took most of its time.
    """
    text: str | None = getattr(node, KEPT_TEXT, None)
    if text is None:
        text = ast.unparse(node)
        setattr(node, KEPT_TEXT, text)
    return text


def _composed(node: ast.AST, value_of: Callable[[ast.AST], Number]) -> Number:
    if isinstance(node, ast.BinOp):
        return _binary(type(node.op), value_of(node.left), value_of(node.right))
    if isinstance(node, ast.UnaryOp):
        value = value_of(node.operand)
        if isinstance(node.op, ast.Invert):
            return ~int(value)
        return {ast.USub: -value, ast.UAdd: value, ast.Not: int(not value)}[type(node.op)]
    if isinstance(node, ast.BoolOp):
        values = [bool(value_of(part)) for part in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return int(
            all(
                _compare(op, a, b, value_of)
                for op, a, b in zip(node.ops, sides, sides[1:], strict=False)
            )
        )
    if isinstance(node, ast.IfExp):
        return value_of(node.body if value_of(node.test) else node.orelse)
    if isinstance(node, ast.Call):
        return _called(node, value_of)
    raise NotANumber


def _compare(
    op: ast.cmpop, left: ast.AST, right: ast.AST, value_of: Callable[[ast.AST], Number]
) -> bool:
    value = value_of(left)
    if isinstance(op, ast.In | ast.NotIn):
        return _is_among(value, right, value_of) is isinstance(op, ast.In)
    compare = COMPARISON_FUNCTIONS.get(type(op))
    if compare is None:
        raise NotANumber
    return bool(compare(value, value_of(right)))


def _is_among(value: Number, node: ast.AST, value_of: Callable[[ast.AST], Number]) -> bool:
    """Says whether a value is an element of a written-out collection or of a range."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return value in [value_of(element) for element in node.elts]
    if isinstance(node, ast.Call) and text_of(node.func) == "range" and 1 <= len(node.args) <= 3:
        bounds = [int(value_of(argument)) for argument in node.args]
        if len(bounds) == 3 and not bounds[2]:
            raise NotANumber
        return value in range(*bounds)
    raise NotANumber


def _called(node: ast.Call, value_of: Callable[[ast.AST], Number]) -> Number:
    name = text_of(node.func).rpartition(".")[2]
    if name == "len" and len(node.args) == 1:
        return _length(node.args[0], value_of)
    if name == "to" and isinstance(node.func, ast.Attribute):  # a conversion of Triton
        return value_of(node.func.value)
    function = FUNCTIONS.get(name)
    if function is None or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        raise NotANumber
    try:
        return function(*[value_of(argument) for argument in node.args])
    except (TypeError, ArithmeticError, ValueError) as error:
        raise NotANumber from error


def _length(node: ast.AST, value_of: Callable[[ast.AST], Number]) -> int:
    """Returns the length of a text or a collection that is written out, perhaps repeated."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return len(node.value)
    if isinstance(node, ast.List | ast.Tuple):
        return len(node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for collection, times in ((node.left, node.right), (node.right, node.left)):
            if isinstance(collection, ast.Constant | ast.List | ast.Tuple):
                return _length(collection, value_of) * int(value_of(times))
    raise NotANumber


def _binary(op: type[ast.operator], left: Number, right: Number) -> Number:
    work = ARITHMETIC_FUNCTIONS.get(op)
    if work is None or (op in EXPONENTS and not 0 <= right <= MAX_EXPONENT):
        raise NotANumber
    try:
        value = work(left, right)
    except (TypeError, ArithmeticError) as error:  # bits of a fraction; a division by zero
        raise NotANumber from error
    if isinstance(value, complex):
        raise NotANumber
    return value


def _literal(value: object) -> Number:
    if isinstance(value, int | float) and abs(value) <= LARGEST:
        return int(value) if value == int(value) else value
    raise NotANumber


def _divided(left: Number, right: Number) -> Number:
    """Divides like `/`; returns an integer if there is no remainder."""
    return left / right if left % right else left // right


def _next_power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


ARITHMETIC_FUNCTIONS: dict[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.Pow: operator.pow, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Div: _divided,
}  # fmt: skip
EXPONENTS = (ast.LShift, ast.Pow, ast.RShift)
COMPARISON_FUNCTIONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Number]] = {
    "min": min, "max": max, "minimum": min, "maximum": max, "abs": abs, "int": int,
    "pow": lambda a, b: _binary(ast.Pow, a, b),
    "cdiv": lambda a, b: -(-a // b), "next_power_of_2": _next_power_of_two, "divmod": lambda a, b: a // b,
    "gcd": math.gcd, "float": float, "round": round, "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a), "exp": math.exp, "exp2": lambda a: 2.0**a, "log": math.log,
    "log2": math.log2, "log10": math.log10, "isqrt": math.isqrt,
}  # fmt: skip
