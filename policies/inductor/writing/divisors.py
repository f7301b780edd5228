"""Divisors as constants of a kernel.

A division by a constant is compiled to a multiplication; a division by a variable costs a dozen
operations.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator

from kernelwright.policies.inductor.syntax import names_assigned, names_in, nodes_in
from kernelwright.policies.inductor.writing.plain import assignments
from kernelwright.policies.inductor.writing.products.hoisting import DIVIDING

MAX_BINARIES = 8
"""Sets of divisors over a kernel's launches up to which they are constants of it: each set is compiled by itself, and
a network of a hundred layers has a hundred.
"""
MAX_KERNELS_WITH_CONSTANT_DIVISORS = 16
"""Number of kernels in a draft up to which all divisors are constants.

On an H100, convolutions lost up to a third of their speed with row divisors as arguments; few
kernels compile quickly.
"""


def divisors_as_constants(
    function: ast.FunctionDef, inner: Collection[str] | None = None, compared: Collection[str] = ()
) -> list[ast.arg]:
    """Annotates parameters used as divisors with tl.constexpr, in place, and returns the
    annotated parameters.

    inner: names of the elements that a program sums or loops over. Only their divisions are made
    constant; other divisions
    stay arguments, so that the kernel is compiled once for all sizes. None: all divisions.
    compared: parameters in masks;
    if the compiler knows their divisibility, it loads vectors under those masks.
    """
    plain = {
        a.arg for a in function.args.args if a.annotation is None and not a.arg.endswith("_pointer")
    }
    counted = None if inner is None else _that_depend_on(inner, function)
    divided = {
        n.id
        for dividend, divisor in _divisions(function)
        if counted is None or counted & _names(dividend)
        for n in ast.walk(divisor)
        if isinstance(n, ast.Name)
    }
    # Parameters that are converted by a method must stay variables: a constant has no methods.
    constant = ((divided | set(compared)) & plain) - _converted(function, plain)
    stored = names_assigned(function)
    constants = [a for a in function.args.args if a.arg in constant - stored]
    for argument in constants:
        argument.annotation = ast.parse("tl.constexpr", mode="eval").body
    return constants


def inner_names(function: ast.FunctionDef, reduced: Collection[str]) -> set[str]:
    """Returns the names of a program's inner elements: the reduced axes, and its loop variables."""
    loops = {ast.unparse(n.target) for n in ast.walk(function) if isinstance(n, ast.For)}
    return {*reduced, *loops}


def _that_depend_on(names: Collection[str], function: ast.FunctionDef) -> set[str]:
    """Returns the names, and all names computed from them."""
    dependent, before = set(names), -1
    # Repeat until no name is added: assignments may use names from any earlier one.
    while len(dependent) != before:
        before = len(dependent)
        dependent |= {name for name, value in assignments(function) if _names(value) & dependent}
    return dependent


def _names(node: ast.AST) -> set[str]:
    return names_in(node)


def numbers_spread(function: ast.FunctionDef) -> None:
    """Rewrites the broadcast of a host number as zeros plus the number, in place.

    Triton 3.6 cannot broadcast a constant, and treats every size of 1 as a constant.
    """
    numbers = _numbers(
        function, {a.arg for a in function.args.args if not a.arg.endswith("_pointer")}
    )
    _Spreading(numbers).visit(function)
    ast.fix_missing_locations(function)


class _Spreading(ast.NodeTransformer):
    def __init__(self, numbers: set[str]) -> None:
        self._numbers = numbers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) != "tl.broadcast_to" or len(node.args) != 2:
            return node
        value, shape = node.args
        # Only scalars from the host are affected: a block is broadcast as usual.
        if not isinstance(value, ast.Constant) and not _is_number(value, self._numbers):
            return node
        return ast.parse(
            f"tl.zeros({ast.unparse(shape)}, tl.int32) + ({ast.unparse(value)})", mode="eval"
        ).body


def _divisions(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Dividend and divisor of each division of whole numbers."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            yield node.left, node.right
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in DIVIDING
        ):
            yield node.args[0], node.args[1]


def _converted(function: ast.FunctionDef, plain: set[str]) -> set[str]:
    """Parameters in numbers with a method call, such as `(height * width).to(tl.float32)`, which constants
    do not have."""
    numbers = _numbers(function, plain)
    converted: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and _is_number(node.value, numbers):
            converted |= names_in(node.value)
    for name, value in reversed(list(assignments(function))):
        if name in converted and _is_number(value, numbers):
            converted |= names_in(value)
    return converted


def _numbers(function: ast.FunctionDef, plain: set[str]) -> set[str]:
    """The parameters, and the names given arithmetic of them."""
    numbers = set(plain)
    for name, value in assignments(function):
        if _is_number(value, numbers):
            numbers.add(name)
    return numbers


def _is_number(value: ast.expr, numbers: set[str]) -> bool:
    """True for arithmetic and comparisons of numbers passed by the host."""
    names = nodes_in(value, ast.Name)
    parts = (
        ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.cmpop, ast.Load,
    )  # fmt: skip
    return (
        bool(names)
        and all(isinstance(n, parts) for n in ast.walk(value))
        and all(n.id in numbers for n in names)
    )


def quotients_named(function: ast.FunctionDef) -> None:
    """Names quotients such as `width // 8` that occur in several places at the top of the kernel."""
    parameters = {a.arg for a in function.args.args if not a.arg.endswith("BLOCK")}
    quotients = Counter(ast.unparse(n) for n in ast.walk(function) if _divides(n, parameters))
    used_names = names_in(function) | parameters
    named = {t: t.replace(" // ", "_over_") for t, count in quotients.items() if count > 1}
    named = {text: name for text, name in named.items() if name not in used_names}
    _Naming(named).visit(function)
    function.body[:0] = [ast.parse(f"{name} = {text}").body[0] for text, name in named.items()]
    ast.fix_missing_locations(function)


def _divides(node: ast.AST, parameters: set[str]) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv)
        and isinstance(node.left, ast.Name)
        and node.left.id in parameters
        and (
            isinstance(node.right, ast.Constant)
            or (isinstance(node.right, ast.Name) and node.right.id in parameters)
        )
    )


class _Naming(ast.NodeTransformer):
    def __init__(self, named: dict[str, str]) -> None:
        self._named = named

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if (name := self._named.get(ast.unparse(node))) is not None:
            return ast.Name(name, ast.Load())
        self.generic_visit(node)
        return node
