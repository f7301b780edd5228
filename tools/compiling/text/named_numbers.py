"""The numbers at which a kernel may do something else: those that its text compares with or cuts values at, and the
floating ones that it is given.
"""

from __future__ import annotations

import ast
import base64
import binascii
import functools
import itertools
import math
import operator
import struct
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tracing.trace import Data, Launch, Operator, Trace, Traced, all_steps

MAX_NAMED_NUMBERS = 12
MIN_MAGNITUDE, MAX_MAGNITUDE = 1e-12, 1e30
MAX_EXAMINED_STEPS = 2_000
"""Steps of a trace whose arguments are looked at."""
MAX_TENSOR_ELEMENTS = 4
"""Elements of a tensor of known values, over which it is a table and no bound."""
CLAMPING_FUNCTIONS = frozenset({"minimum", "maximum", "clamp", "min", "max"})
FILLING_OPERATORS = frozenset({"full", "full_like", "new_full", "fill", "fill_", "scalar_tensor"})
"""Operators that make tensors of one number."""
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
STRUCT_FORMATS = {"float32": "<f", "float64": "<d", "float16": "<e"}


def named_numbers(traced: Traced, trace: Trace) -> tuple[float, ...]:
    """Magnitudes, each once, the smallest first; of many those that the texts compare with."""
    found: dict[float, None] = {}
    for number in itertools.chain(_compared(traced), _given(traced), _arguments(trace)):
        if MIN_MAGNITUDE <= abs(number) <= MAX_MAGNITUDE:
            found[abs(number)] = None
        if len(found) == MAX_NAMED_NUMBERS:
            break
    return tuple(sorted(found))


def _compared(traced: Traced) -> Iterator[float]:
    for function in traced.functions.values():
        yield from _of_text(function.text)


@functools.lru_cache(maxsize=64)
def _of_text(text: str) -> tuple[float, ...]:
    """A verdict asks several times. Most texts compare with a handful of numbers; of a long one some thousands."""
    try:
        return tuple(_of_tree(parse_module(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _of_tree(tree: ast.AST) -> Iterator[float]:
    names: dict[str, float] = {}
    sides: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            number = _number(node.value, names)
            if number is not None:
                names.setdefault(node.targets[0].id, number)
        elif isinstance(node, ast.Compare):
            sides += [node.left, *node.comparators]
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLAMPING_FUNCTIONS
        ):
            sides += node.args
    for side in sides:
        number = _number(side, names)
        if number is not None:
            yield number


def _number(node: ast.expr, names: dict[str, float], depth: int = 8) -> float | None:
    """What an expression of literals and of names of such is; None where it is something else."""
    if isinstance(node, ast.Constant):
        value = node.value
        return _float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.UnaryOp) and depth:
        return _number(node.operand, names, depth - 1)  # magnitudes are what is asked for
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and depth:
        left, right = (_number(side, names, depth - 1) for side in (node.left, node.right))
        if left is not None and right is not None and (right or not isinstance(node.op, ast.Div)):
            return ARITHMETIC[type(node.op)](left, right)
    return None


def _given(traced: Traced) -> Iterator[float]:
    """Among the constants of kernels and what the names in their texts stand for."""
    for kernel in traced.kernels.values():
        yield from (value for _, form in kernel.constants for value in _floats(form))
    for function in traced.functions.values():
        yield from (value for form in function.names.values() for value in _floats(form))


def _arguments(trace: Trace) -> Iterator[float]:
    """Yields the arguments of launches, and of operators that fill tensors which launches may read."""
    steps = all_steps([*trace.setup, *trace.first, *(trace.later or ())])
    for step in itertools.islice(steps, MAX_EXAMINED_STEPS):
        if isinstance(step, Launch):
            yield from (value for form in step.args.values() for value in _floats(form))
        elif isinstance(step, Operator) and step.op.split(".")[1:2] and step.op.split(".")[1] in FILLING_OPERATORS:
            yield from (value for form in (*step.args, step.kwargs.get("fill_value")) for value in _floats(form))
        elif isinstance(step, Data):
            yield from _of_data(step)


def _of_data(step: Data) -> Iterator[float]:
    layout, count = STRUCT_FORMATS.get(step.dtype), math.prod(step.shape)
    if layout is None or count > MAX_TENSOR_ELEMENTS:
        return
    try:
        content = base64.b64decode(step.data, validate=True)
        yield from (value for (value,) in struct.iter_unpack(layout, content))
    except (binascii.Error, struct.error, ValueError):
        return


def _floats(form: Any) -> Iterator[float]:
    waiting = [form]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
