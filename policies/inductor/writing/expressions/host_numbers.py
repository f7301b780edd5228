"""Moves arithmetic of sizes from a kernel to its launch.

Inductor computes numbers such as the correction n / (n - 1) of a variance in every program, in float64. The host
computes them once, with the same float64 arithmetic, and passes them as float32: the kernel sees the same number.

Example: with the launch argument ks0 = "x.shape[0]", the statements

    tmp1 = (ks0 / (tl.full([], -1.0, tl.float64) + ks0)).to(tl.float32)
    tmp2 = tmp0 * tmp1

become, with the launch argument kf0 = "x.shape[0] / (-1.0 + x.shape[0])",

    tmp1 = kf0
    tmp2 = tmp0 * tmp1
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Sequence

from kernelwright.policies.inductor.syntax import argument_names, names_in, nodes_in
from kernelwright.policies.inductor.writing.expressions.sums import ARITHMETIC_OPERATOR
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import WrittenLaunch
from kernelwright.policies.inductor.writing.plain import assignments

PREFIX = "kf"
"""Start of the names of the added parameters, beside Inductor's `ks` for sizes."""


def move_numbers_to_host(kernel: LoweredKernel, launches: Sequence[WrittenLaunch]) -> None:
    """Replaces float32 numbers computed from sizes alone by parameters of the kernel, in place.

    Numbers that a kernel uses in float64 stay where they are.
    """
    reading = _Reading(kernel)
    parameters: dict[str, str] = {}
    for node in nodes_in(kernel.function, ast.Assign):
        number = reading.rounded(node.value)
        if number is None or not names_in(number) & reading.sizes:
            continue
        text = ast.unparse(number)
        parameter = parameters.setdefault(text, f"{PREFIX}{len(parameters)}")
        node.value = ast.Name(parameter, ast.Load())
    for text, parameter in parameters.items():
        _add_parameter(kernel, parameter)
        for launch in launches:
            launch.arguments[parameter] = _with_arguments(text, launch)
    ast.fix_missing_locations(kernel.function)


def _add_parameter(kernel: LoweredKernel, parameter: str) -> None:
    """Adds a parameter before the block sizes."""
    arguments = kernel.function.args.args
    position = len(arguments) - len(kernel.blocks)
    arguments.insert(position, ast.arg(parameter))


def _with_arguments(text: str, launch: WrittenLaunch) -> str:
    """Returns an expression of a kernel's sizes as an expression of forward."""
    values = {
        name: ast.parse(value, mode="eval").body
        for name, value in launch.arguments.items()
        if name in names_in(ast.parse(text))
    }
    expression = _Filling(values).visit(ast.parse(text, mode="eval").body)
    return ast.unparse(_Cancelling().visit(expression))


class _Filling(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._values.get(node.id, node))


class _Cancelling(ast.NodeTransformer):
    """Writes `8 * n / 8` as `n`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            rest = _without_factor(node.left, node.right.value)
            return node if rest is None else rest
        return node


def _without_factor(product: ast.expr, factor: object) -> ast.expr | None:
    """Returns a product without its first factor if equal to the given number, else None."""
    if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
        return None
    if isinstance(product.left, ast.Constant):
        return product.right if product.left.value == factor else None
    rest = _without_factor(product.left, factor)
    return None if rest is None else ast.BinOp(rest, ast.Mult(), product.right)


class _Reading:
    """Reads the numbers of one kernel."""

    def __init__(self, kernel: LoweredKernel) -> None:
        counted = Counter(name for name, _ in assignments(kernel.function))
        stored = Counter(
            node.id
            for node in nodes_in(kernel.function, ast.Name)
            if isinstance(node.ctx, ast.Store)
        )
        self._values = {
            name: value
            for name, value in assignments(kernel.function)
            if counted[name] == stored[name] == 1
        }
        pointers_and_blocks = {p for p in kernel.parameters if "ptr" in p or p in kernel.blocks}
        self.sizes = argument_names(kernel.function) - pointers_and_blocks - set(stored)

    def rounded(self, node: ast.expr) -> ast.expr | None:
        """Returns the host's expression for a value that is rounded to float32; None for all other values."""
        inner = _converted(node, "tl.float32")
        if inner is None:
            return None
        if isinstance(inner, ast.Name) and inner.id in self._values:
            again = self.rounded(self._values[inner.id])
            if again is not None:
                return again
        number = self._number(inner)
        if number is None:
            return None
        is_whole = not any(isinstance(n, ast.Div | ast.Pow) for n in ast.walk(number))
        is_whole = is_whole and not any(
            type(n.value) is float for n in nodes_in(number, ast.Constant)
        )
        return ast.Call(ast.Name("float", ast.Load()), [number], []) if is_whole else number

    def _number(self, node: ast.expr) -> ast.expr | None:
        """Returns the host's expression for whole and float64 arithmetic of sizes; None for all other values."""
        if isinstance(node, ast.Constant):
            return node if type(node.value) in (int, float) else None
        if isinstance(node, ast.Name):
            if node.id in self.sizes:
                return node
            return self._number(self._values[node.id]) if node.id in self._values else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self._number(node.operand)
            return None if operand is None else ast.UnaryOp(ast.USub(), operand)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        return self._call(node) if isinstance(node, ast.Call) else None

    def _arithmetic(self, node: ast.BinOp) -> ast.expr | None:
        left, right = self._number(node.left), self._number(node.right)
        if left is None or right is None or not isinstance(node.op, ARITHMETIC_OPERATOR | ast.Div):
            return None
        return ast.BinOp(left, node.op, right)

    def _call(self, node: ast.Call) -> ast.expr | None:
        double = _converted(node, "tl.float64")
        if double is not None:
            return self._number(double)
        name = ast.unparse(node.func)
        if name == "tl.full" and ast.unparse(node.args[2]) == "tl.float64":
            return self._number(node.args[1])
        numbers = [self._number(argument) for argument in node.args]
        if any(number is None for number in numbers):
            return None
        if name == "libdevice.pow" and len(numbers) == 2:
            return ast.BinOp(numbers[0], ast.Pow(), numbers[1])  # type: ignore[arg-type]
        if name == "libdevice.sqrt" and len(numbers) == 1:
            return ast.BinOp(numbers[0], ast.Pow(), ast.Constant(0.5))  # type: ignore[arg-type]
        return None


def _converted(node: ast.expr, dtype: str) -> ast.expr | None:
    """Returns x for `x.to(dtype)`, and None for all other expressions."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    converts = node.func.attr == "to" and [ast.unparse(a) for a in node.args] == [dtype]
    return node.func.value if converts else None
