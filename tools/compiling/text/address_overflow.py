"""Finds addresses which overflow 32 bits at the sizes of a launch, by interval arithmetic on the
kernel's text.

The interpreter runs small sizes, at which nothing overflows. The trace contains grid and
arguments of the problem's own size. The text is walked once with ranges in place of numbers.
Known are program numbers, `tl.arange`, arguments and constants; loaded values, values carried
between iterations, and results of float arithmetic are unknown. Only an overflowed integer added
to a pointer is reported: a hash may overflow.

Example: grid (600000,), `offset = tl.program_id(0) * 4096; tl.load(x + offset)`. The range of
offset is 0 to 2,457,595,904, beyond 2**31 - 1: "at the problem's own size tl.program_id(0) * 4096
reaches 2,457,595,904 and wraps".
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from kernelwright.tools.compiling.text.intervals import (
    Range,
    Wrap,
    computed,
    constant,
    joined,
    widened,
)
from kernelwright.tools.compiling.text.kernel_text import candidate_line
from kernelwright.tools.compiling.text.signature import parameters
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import Failure, Fault, clean_text
from kernelwright.tools.trace.trace import Function, Kernel, Launch, Traced, all_steps

MAX_CHECKED_LAUNCHES = 2_000
"""Maximum number of examined steps of a trace."""
POINTER = object()
"""Abstract value of every address."""
MAX_STATEMENTS = 20_000
"""Maximum number of walked statements; those of a device function count at each call."""
MAX_CALL_DEPTH = 8
"""Maximum depth of nested calls of device functions."""
AS_THEY_ARE = frozenset(
    {"multiple_of", "max_contiguous", "max_constancy", "broadcast_to", "reshape", "expand_dims"}
)
"""Functions of Triton whose result takes the values of the first argument."""
WIDE_TYPES = frozenset({"int64", "uint64"})

Value = Any
"""Range, POINTER, a tuple of values, or None if unknown."""


def overflow_failure(traced: Traced, warnings: list[str]) -> Failure | None:
    """Returns a failure if addresses surely overflow at the problem's own size (the first trace);
    else None. Possible overflows are added to the warnings.
    """
    trace = traced.traces[0] if traced.traces else None
    steps = (
        all_steps([*trace.setup, *trace.first, *(trace.later or ())]) if trace is not None else ()
    )
    examined: set[str] = set()
    for step in itertools.islice(steps, MAX_CHECKED_LAUNCHES):
        if not isinstance(step, Launch) or step.kernel not in traced.kernels:
            continue
        form = repr(
            (
                step.kernel,
                step.grid,
                sorted(item for item in step.args.items() if type(item[1]) is int),
            )
        )
        if form in examined:
            continue
        examined.add(form)
        for function, wrap in wraps_of_launch(step, traced.kernels[step.kernel], traced.functions):
            if wrap.certain:
                return Failure(
                    fault=Fault.OUT_OF_BOUNDS,
                    message=_overflow_message(wrap, "reaches", "wraps"),
                    where=candidate_line(function, wrap.line, 0),
                )
            if (warning := _overflow_message(wrap, "may reach", "would wrap")) not in warnings:
                warnings.append(warning)
    return None


def _overflow_message(wrap: Wrap, reaches: str, wraps: str) -> str:
    expression = clean_text(wrap.expression.replace("\n", " "), 120)
    return (
        f"at the problem's own size {expression} {reaches} {wrap.reaches:,} and {wraps} in 32 bits before it is added "
        "to a pointer: widen an operand first, as in tl.program_id(0).to(tl.int64)"
    )


def wraps_of_launch(
    launch: Launch, kernel: Kernel, functions: Mapping[str, Function]
) -> list[tuple[Function, Wrap]]:
    """Returns the overflowed integers added to pointers by a launch, with the function which
    computes each.
    """
    function = functions.get(kernel.function)
    if function is None or not all(launch.grid):
        return []
    walk = _Walk(launch.grid, functions)
    try:
        names = [parameter.arg for parameter in parameters(_definition(function))]
        walk.run(
            function, dict(zip(names, map(_argument, _values(names, launch, kernel)), strict=True))
        )
    except (
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # a text that the compiler refuses with a message
        return []
    return walk.wraps


def _definition(function: Function) -> ast.FunctionDef:
    """Returns the definition of a function. Raises ValueError for any other text."""
    body = parse_module(function.text).body
    if not body or not isinstance(body[0], ast.FunctionDef):
        raise ValueError("a kernel's text is one function")
    return body[0]


def _values(names: list[str], launch: Launch, kernel: Kernel) -> Iterable[tuple[str, Any]]:
    constants = {path[0]: form for path, form in kernel.constants if len(path) == 1}
    for index, name in enumerate(names):
        form = constants.get(index, constants.get(name, launch.args.get(name)))
        yield str(kernel.signature.get(name, "constexpr")), form


def _argument(typed: tuple[str, Any]) -> Value:
    kind, form = typed
    if kind.startswith("*"):
        return POINTER
    if type(form) is not int:
        return None
    return widened(constant(form)) if kind in ("i64", "u64") else constant(form)


class _Walk:
    """Abstract execution of a kernel and of the device functions it calls."""

    def __init__(self, grid: tuple[int, int, int], functions: Mapping[str, Function]) -> None:
        self._grid = grid
        self._functions = functions
        self._function: Function | None = None
        self._depth = self._guards = self._statements = 0
        self.wraps: list[tuple[Function, Wrap]] = []

    def run(self, function: Function, values: dict[str, Value]) -> Value:
        """Walks through a function; returns the value of its last `return`."""
        caller, self._function = self._function, function
        guards = self._guards
        self._depth += 1
        try:
            return self._block(_definition(function).body, values)
        finally:
            self._function = caller
            self._guards = guards
            self._depth -= 1

    # ------------------------------------------------------------------ statements
    def _block(self, body: list[ast.stmt], values: dict[str, Value]) -> Value:
        result: Value = None
        for statement in body:
            self._statements += 1
            if self._statements > MAX_STATEMENTS:
                return None
            if isinstance(statement, ast.Return):
                return self._value(statement.value, values)
            returned = self._statement(statement, values)
            result = returned if returned is not None else result
        return result

    def _statement(self, statement: ast.stmt, values: dict[str, Value]) -> Value:
        if isinstance(statement, ast.Assign):
            self._bind(statement.targets[0], self._value(statement.value, values), values)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._bind(statement.target, self._value(statement.value, values), values)
        elif isinstance(statement, ast.AugAssign):
            operation = ast.BinOp(statement.target, statement.op, statement.value)
            ast.copy_location(operation, statement)
            self._bind(statement.target, self._value(operation, values), values)
        elif isinstance(statement, ast.Expr):
            self._value(statement.value, values)
        elif isinstance(statement, ast.If):
            return self._either(statement, values)
        elif isinstance(statement, ast.For | ast.While):
            self._loop(statement, values)
        return None

    def _bind(self, target: ast.expr, value: Value, values: dict[str, Value]) -> None:
        if isinstance(target, ast.Name):
            values[target.id] = value
        elif isinstance(target, ast.Tuple):
            parts = value if isinstance(value, tuple) else (None,) * len(target.elts)
            for part, inner in zip(target.elts, parts, strict=False):
                self._bind(part, inner, values)

    def _either(self, statement: ast.If, values: dict[str, Value]) -> Value:
        """Walks both branches; effects of a single branch are uncertain."""
        self._value(statement.test, values)
        other = dict(values)
        self._guards += 1
        result = self._block(statement.body, values)
        result_of_other = self._block(statement.orelse, other)
        if not any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            self._guards -= (
                1  # otherwise a program may end here, and what follows is not certain either
            )
        for name in {*values, *other}:
            first = values.get(name)
            second = other.get(name)
            if isinstance(first, Range) and isinstance(second, Range) and first != second:
                values[name] = joined(first, second)
            else:
                values[name] = first if first == second else None
        return result if result is not None else result_of_other

    def _loop(self, statement: ast.For | ast.While, values: dict[str, Value]) -> None:
        """Walks the body once for all iterations; values carried between iterations become
        unknown, except pointers.
        """
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and values.get(node.id) is not POINTER
            ):
                values[node.id] = None
        if isinstance(statement, ast.While):
            self._guards += 1
            self._block(statement.body, values)
            self._guards -= 1
            return
        turns = self._turns(statement.iter, values)
        self._bind(statement.target, turns, values)
        if turns is None or turns.low <= turns.high:
            self._block(statement.body, values)

    def _turns(self, iterated: ast.expr, values: dict[str, Value]) -> Value:
        """Returns the range of the numbers of a `range`; an empty range has low > high."""
        if not isinstance(iterated, ast.Call) or not _name(iterated.func).endswith("range"):
            return None
        ends = [self._value(a, values) for a in iterated.args]
        if not ends or not all(isinstance(end, Range) for end in ends):
            return None
        start, stop = (ends[0], ends[1]) if len(ends) > 1 else (constant(0), ends[0])
        step = ends[2] if len(ends) > 2 else constant(1)
        if not step.is_constant or step.low < 1:
            return None
        last = start.low + (stop.high - 1 - start.low) // step.low * step.low
        exact = start.is_constant and stop.is_constant
        return Range(
            start.low,
            last,
            start.wide or stop.wide,
            start.sources | stop.sources | {f"line {iterated.lineno}"},
            exact,
        )

    # ------------------------------------------------------------------ expressions
    def _value(self, node: ast.expr | None, values: dict[str, Value]) -> Value:
        if isinstance(node, ast.Constant):
            return constant(node.value) if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return values[node.id] if node.id in values else self._global(node.id)
        if isinstance(node, ast.BinOp):
            return self._operation(
                node, self._value(node.left, values), self._value(node.right, values)
            )
        if isinstance(node, ast.Call):
            return self._call(node, values)
        if isinstance(node, ast.Subscript):
            inner = self._value(node.value, values)
            return inner if isinstance(inner, Range) or inner is POINTER else None
        if isinstance(node, ast.Tuple):
            return tuple(self._value(each, values) for each in node.elts)
        for child in ast.iter_child_nodes(node) if node is not None else ():
            if isinstance(child, ast.expr):
                self._value(child, values)
        return None

    def _global(self, name: str) -> Value:
        form = self._function.names.get(name) if self._function is not None else None
        value = form.get("constexpr", form.get("value")) if isinstance(form, dict) else None
        return constant(value) if type(value) is int else None

    def _operation(self, node: ast.BinOp, lhs: Value, right: Value) -> Value:
        for pointer, offset in ((lhs, right), (right, lhs)):
            if pointer is POINTER:
                if isinstance(offset, Range) and offset.wrap is not None:
                    self._note(offset.wrap)
                return POINTER
        return (
            computed(node, lhs, right)
            if isinstance(lhs, Range) and isinstance(right, Range)
            else None
        )

    def _note(self, wrap: Wrap) -> None:
        certain = wrap.certain and not self._guards
        assert self._function is not None
        self.wraps.append((self._function, Wrap(wrap.line, wrap.expression, wrap.reaches, certain)))

    def _call(self, node: ast.Call, values: dict[str, Value]) -> Value:
        name = _name(node.func)
        arguments = [self._value(a, values) for a in node.args]
        first = arguments[0] if arguments else None
        if (
            name in ("program_id", "num_programs")
            and isinstance(first, Range)
            and 0 <= first.low <= 2
        ):
            count = self._grid[first.low]
            axis = frozenset({f"axis {first.low}"})
            return (
                Range(0, count - 1, sources=axis, dense=True)
                if name == "program_id"
                else constant(count)
            )
        if len(arguments) == 2 and isinstance(first, Range) and isinstance(arguments[1], Range):
            if name == "arange":
                lanes = frozenset({f"lanes {node.lineno} {node.col_offset}"})
                return Range(first.low, arguments[1].high - 1, sources=lanes, dense=True)
            if name == "cdiv" and first.low > 0 and arguments[1].low > 0:
                return _divided_up(first, arguments[1])
        if name in ("to", "cast"):
            return self._converted(node, values, first)
        if name in AS_THEY_ARE:
            return first if first is not None else self._receiver(node, values)
        return self._called(node, name, arguments, values)

    def _converted(self, node: ast.Call, values: dict[str, Value], first: Value) -> Value:
        receiver = self._receiver(node, values)
        value = receiver if isinstance(receiver, Range) else first
        types = [_name(a) for a in (*node.args, *(k.value for k in node.keywords))]
        if not isinstance(value, Range):
            return None
        return (
            widened(value)
            if WIDE_TYPES.intersection(types)
            else value
            if "int32" in types
            else None
        )

    def _receiver(self, node: ast.Call, values: dict[str, Value]) -> Value:
        if not isinstance(node.func, ast.Attribute) or _name(node.func.value) == "tl":
            return None
        return self._value(node.func.value, values)

    def _called(
        self, node: ast.Call, name: str, arguments: list[Value], values: dict[str, Value]
    ) -> Value:
        """The value of a device function of the candidate's own. Everything else is not followed."""
        named = {k.arg: self._value(k.value, values) for k in node.keywords if k.arg is not None}
        self._receiver(node, values)
        form = self._function.names.get(name) if self._function is not None else None
        called = self._functions.get(str(form.get("function"))) if isinstance(form, dict) else None
        if called is None or self._depth >= MAX_CALL_DEPTH:
            return None
        names = [parameter.arg for parameter in parameters(_definition(called))]
        return self.run(
            called, dict.fromkeys(names) | dict(zip(names, arguments, strict=False)) | named
        )


def _name(node: ast.expr) -> str:
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def _divided_up(first: Range, second: Range) -> Range:
    quotients = [-(-a // b) for a in (first.low, first.high) for b in (second.low, second.high)]
    exact = first.exact and second.is_constant
    return Range(min(quotients), max(quotients), first.wide, first.sources, exact)
