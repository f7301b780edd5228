"""Detects special treatment of NaN in a kernel's text; such a kernel must then agree with eager
execution on NaN.
"""

from __future__ import annotations

import ast
import functools

from kernelwright.tools.parsing import parse_module

NAN_TESTS = frozenset(
    {"isnan", "isnand", "isfinited", "finitef", "isinf", "propagate_nan", "PropagateNan"}
)

BITS_OF_INFINITY = frozenset(
    bits + offset
    for sign, bits in (
        (1 << 15, 0x7C00),
        (1 << 15, 0x7F80),
        (1 << 31, 0x7F800000),
        (1 << 63, 0x7FF0 << 48),
    )
    for offset in (-1, 0, 1, sign)
) | {0x7FFF, 0x7FFFFFFF, (1 << 63) - 1}
"""Bits of an infinity as half, bfloat16, single and double, with neighbouring numbers, and masks
without the sign bit.
"""


@functools.lru_cache(maxsize=64)
def treats_nan(text: str) -> bool:
    """Returns whether a kernel's text treats NaN specially: compares a value with itself, or
    tests for NaN.
    """
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and (getattr(node, "attr", "") or getattr(node, "id", "")) in NAN_TESTS
        ):
            return True
        if _parts_all_numbers(node):
            return True
        if isinstance(node, ast.Compare) and ast.dump(node.left) == ast.dump(node.comparators[0]):
            return True
    return _has_both_sides(tree) or _looks_at_bits(tree)


def _looks_at_bits(tree: ast.AST) -> bool:
    """Returns whether values are bit-cast beside a number with the bits of an infinity, or a mask
    without the sign bit.
    """
    nodes = list(ast.walk(tree))
    cast = any(isinstance(node, ast.keyword) and node.arg == "bitcast" for node in nodes)
    return cast and any(
        isinstance(n, ast.Constant) and type(n.value) is int and n.value in BITS_OF_INFINITY
        for n in nodes
    )


def _has_both_sides(tree: ast.AST) -> bool:
    """Returns whether a value is unchanged on both sides of a literal (`where(v < 0, v, where(v >
    0, v, y))`), which leaves NaN to the remaining branch.
    """
    sides: dict[tuple[str, str], set[bool]] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and len(node.args) == 3):
            continue
        condition, chosen = node.args[:2]
        if (
            not isinstance(condition, ast.Compare)
            or len(condition.ops) != 1
            or type(condition.ops[0]) not in _OPPOSITE
        ):
            continue
        lhs = condition.left
        right = condition.comparators[0]
        below = isinstance(condition.ops[0], ast.Lt | ast.LtE)
        if _is_number(lhs):
            lhs, right, below = right, lhs, not below
        if _is_number(right) and ast.dump(lhs) == ast.dump(chosen):
            sides.setdefault((ast.dump(lhs), ast.dump(right)), set()).add(below)
    return any(len(both) == 2 for both in sides.values())


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


_OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}


def _parts_all_numbers(node: ast.AST) -> bool:
    """`(v < c) | (v >= c)`, which every number is and NaN is not; `v - v`, which is 0 for every finite number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return (
            isinstance(node.left, ast.Name)
            and isinstance(node.right, ast.Name)
            and node.left.id == node.right.id
        )
    sides: list[ast.AST] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd):
        sides = [node.left, node.right]
    elif isinstance(node, ast.BoolOp):
        sides = list(node.values)
    comparisons = [s for s in sides if isinstance(s, ast.Compare) and len(s.comparators) == 1]
    return any(
        _OPPOSITE.get(type(first.ops[0])) is type(other.ops[0])
        and ast.dump(first.left) == ast.dump(other.left)
        and ast.dump(first.comparators[0]) == ast.dump(other.comparators[0])
        for first in comparisons
        for other in comparisons
    )
