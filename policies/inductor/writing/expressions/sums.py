"""Sums of whole numbers as a person writes them: `x - c` and not `x + -1 * c`, `2 * s + 1` and not `1 + 2 * s`."""

from __future__ import annotations

import ast
from collections.abc import Callable

Term = tuple[int, ast.expr]
"""Sign (1 or -1) and unsigned term."""
ARITHMETIC_OPERATOR = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod


def plain_sum(node: ast.BinOp, is_whole: Callable[[ast.expr], bool]) -> ast.BinOp:
    """Returns an integer sum with numbers last and without negative factors; other expressions
    unchanged.

    Terms keep their order, so that additions in 64 bits stay in 64 bits. is_whole: predicate for
    integer expressions, the
    only ones that may be reordered. Example: `1 + x + -1 * c` becomes `x - c + 1`.
    """
    if not isinstance(node.op, ast.Add | ast.Sub) or not is_whole(node):
        return node
    terms = _terms(node, 1)
    # All integer terms become one number at the end.
    number = sum(
        sign * int(ast.literal_eval(term)) for sign, term in terms if isinstance(term, ast.Constant)
    )
    variable_terms = [(sign, term) for sign, term in terms if not isinstance(term, ast.Constant)]
    # A sum begins with a positive term: `x - c`, not `-c + x`.
    first = next((position for position, (sign, _) in enumerate(variable_terms) if sign > 0), None)
    if first is not None:
        variable_terms.insert(0, variable_terms.pop(first))
        variable_terms += [(1 if number > 0 else -1, ast.Constant(abs(number)))] if number else []
    elif number > 0:
        variable_terms.insert(0, (1, ast.Constant(number)))
    if not variable_terms or variable_terms[0][0] < 0 or len(variable_terms) < 2:
        return node
    total = variable_terms[0][1]
    for sign, term in variable_terms[1:]:
        total = ast.BinOp(total, ast.Add() if sign > 0 else ast.Sub(), term)
    assert isinstance(total, ast.BinOp)
    return total


def _terms(node: ast.expr, sign: int) -> list[Term]:
    """The terms of a sum written without brackets."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = sign if isinstance(node.op, ast.Add) else -sign
        # A bracket on the right stays one term: removing it could change the order in 64 bits.
        bracket = isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Add | ast.Sub)
        return [
            *_terms(node.left, sign),
            (right, node.right) if bracket else _signed(node.right, right),
        ]
    return [_signed(node, sign)]


def _signed(node: ast.expr, sign: int) -> Term:
    """`-2 * c` as the term `2 * c` with the other sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -sign, node.operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        changed, factor = _signed(node.left, sign)
        if changed != sign:
            is_one = isinstance(factor, ast.Constant) and factor.value == 1
            return changed, node.right if is_one else ast.BinOp(factor, ast.Mult(), node.right)
    return sign, node


def is_size(node: ast.expr) -> bool:
    """Whether an expression of the host is arithmetic of sizes, which have names there, or are read of a shape."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and is_size(node.operand)
    if isinstance(node, ast.BinOp):
        return (
            isinstance(node.op, ARITHMETIC_OPERATOR) and is_size(node.left) and is_size(node.right)
        )
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
