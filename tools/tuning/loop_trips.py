"""Computes the numbers of iterations of a kernel's loops from its text and the numbers of a
launch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from kernelwright.tools.tuning.kernel_text.kernel_syntax import called_name
from kernelwright.tools.tuning.launch_facts import TracedLaunchFacts

MAX_EXPRESSION_DEPTH = 12


class Unknown(ValueError):
    """Raised for a number unknown from the text and the launch."""


def trips_of(node: ast.FunctionDef, launch: TracedLaunchFacts) -> list[float]:
    """Returns the iterations of the outermost loops without unrolling, in order; 1 if unknown.

    A loop with ends depending on the program number is counted for the program in the middle of
    the grid.
    """
    numbers = _Numbers(node, launch)
    counts = []
    for loop in _outermost(node.body):
        if isinstance(loop, ast.For) and called_name(loop.iter) == "static_range":
            continue
        try:
            counts.append(max(1.0, numbers.trips(loop)))
        except (Unknown, ZeroDivisionError, OverflowError):
            counts.append(1.0)
    return counts


def _outermost(body: list[ast.stmt]) -> Iterator[ast.For | ast.While]:
    for statement in body:
        if isinstance(statement, ast.For | ast.While):
            yield statement
        elif isinstance(statement, ast.If | ast.With):
            yield from _outermost([*statement.body, *getattr(statement, "orelse", [])])


class _Numbers:
    def __init__(self, node: ast.FunctionDef, launch: TracedLaunchFacts) -> None:
        self._launch = launch
        self._assigned: dict[str, ast.expr | None] = {}
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Assign)
                and len(inner.targets) == 1
                and isinstance(inner.targets[0], ast.Name)
            ):
                name = inner.targets[0].id
                self._assigned[name] = None if name in self._assigned else inner.value

    def trips(self, loop: ast.For | ast.While) -> float:
        """Returns the number of iterations of a `for` over a range. Raises Unknown if a bound is
        unknown.
        """
        if (
            not isinstance(loop, ast.For)
            or called_name(loop.iter) != "range"
            or not isinstance(loop.iter, ast.Call)
        ):
            raise Unknown("no range")
        ends = [self.value(a, MAX_EXPRESSION_DEPTH) for a in loop.iter.args]
        first, last = (0.0, ends[0]) if len(ends) == 1 else (ends[0], ends[1])
        step = ends[2] if len(ends) > 2 else 1.0
        return float(-(-(last - first) // step))

    def value(self, node: ast.expr, deepest: int) -> float:
        """Returns the value of an expression. Raises Unknown."""
        if deepest == 0:
            raise Unknown("too deep")
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name):
            return self._named(node.id, deepest)
        if isinstance(node, ast.BinOp):
            return _arithmetic(
                node.op, self.value(node.left, deepest - 1), self.value(node.right, deepest - 1)
            )
        if isinstance(node, ast.Call):
            return self._called(node, deepest)
        raise Unknown(type(node).__name__)

    def _named(self, name: str, deepest: int) -> float:
        if name in self._launch.numbers:
            return float(self._launch.numbers[name])
        assigned = self._assigned.get(name)
        if assigned is None:
            raise Unknown(name)
        return self.value(assigned, deepest - 1)

    def _called(self, call: ast.Call, deepest: int) -> float:
        name = called_name(call)
        if name in ("program_id", "num_programs"):
            axis = self.value(call.args[0], deepest - 1) if call.args else 0.0
            programs = self._launch.grid[int(axis)] if 0 <= axis < 3 else 1
            return float(programs if name == "num_programs" else programs // 2)
        if name == "to" and isinstance(call.func, ast.Attribute):
            return self.value(call.func.value, deepest - 1)
        values = [self.value(a, deepest - 1) for a in call.args]
        match name, values:
            case "cdiv", [a, b]:
                return float(-(-a // b))
            case (("minimum" | "min"), [a, b]):
                return min(a, b)
            case (("maximum" | "max"), [a, b]):
                return max(a, b)
        raise Unknown(name)


def _arithmetic(operator: ast.operator, lhs: float, right: float) -> float:
    operations: Mapping[type, Any] = {
        ast.Add: lambda: lhs + right,
        ast.Sub: lambda: lhs - right,
        ast.Mult: lambda: lhs * right,
        ast.FloorDiv: lambda: lhs // right,
        ast.Mod: lambda: lhs % right,
    }
    if type(operator) not in operations:
        raise Unknown(type(operator).__name__)
    return float(operations[type(operator)]())
