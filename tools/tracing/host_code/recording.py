"""Records decisions of a candidate's host code: its source is compiled with a call around each
choice.

Runs in a candidate's process. Names, lines and values are those of the source. Example: `if rows >
64:` as choice 3 is compiled as `if __kernelwright_choices__.condition(3, rows > 64):`, and
`TABLE[n]` as choice 4 as `__kernelwright_choices__.result(4,
TABLE[__kernelwright_choices__.operand(4, n)])`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tracing.host_code.choices import (
    FALSE,
    STUCK,
    TRUE,
    ChoiceKind,
    ChoicePoint,
    choices_of,
    deep_recursion,
)

RECORDER = "__kernelwright_choices__"
"""Name of the recorder among a candidate's globals. Ends with underscores, so that classes do not
mangle it."""
LEAST_OPERANDS = {ast.Subscript: 2, ast.Call: 2, ast.BinOp: 4}
"""Number of different operands with an equal result from which that result counts as the only one.
"""
MAX_REPR_CHARACTERS = 200
_DECIDING = (bool, int, float, str, bytes, tuple, list, dict, set, type(None))
_COMPARABLE = (*_DECIDING, FunctionType, type, torch.dtype)
"""Types of operands and results that are told apart; a launcher of a kernel is a new object each time."""


class ChoiceRecorder:
    """Choices recorded so far, over all sizes."""

    def __init__(self) -> None:
        self.choices: list[ChoicePoint] = []
        self._outcomes: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._operands: dict[int, set[Any]] = {}
        self._results: dict[int, set[Any]] = {}

    @contextlib.contextmanager
    def counted(self, counts: bool) -> Iterator[None]:
        """Context manager whose choices count, unless it raises or `counts` is False."""
        self._pending = {}
        held = {number: set(results) for number, results in self._results.items()}
        try:
            yield
            if counts:
                for number, outcome in self._pending.items():
                    self._outcomes[number] = self._outcomes.get(number, 0) | outcome
            else:
                self._results = held
        finally:
            self._pending = {}

    def outcomes_by_choice(self) -> list[int]:
        """Returns the outcomes of each choice as a sum of TRUE, FALSE and STUCK; 0 if never
        reached."""
        return [
            self._outcomes.get(number, 0) | self._stuck(number)
            for number in range(len(self.choices))
        ]

    def _stuck(self, number: int) -> int:
        least = LEAST_OPERANDS.get(type(self.choices[number].node), 2)
        several = len(self._operands.get(number, ())) >= least
        return STUCK if several and len(self._results.get(number, ())) == 1 else 0

    # -------------------------------------------------------------- called by the candidate's code
    def condition(self, number: int, value: object) -> Any:
        """Records the truth of a value; returns the value."""
        if isinstance(value, _DECIDING):
            self._pending[number] = self._pending.get(number, 0) | (TRUE if value else FALSE)
        return value

    def answer(self, number: int, value: object) -> Any:
        """Records the result of a call if True or False; returns it."""
        return self.condition(number, value) if type(value) is bool else value

    def operand(self, number: int, value: object) -> Any:
        """Records the operand of a look-up or operator; returns it."""
        self._keep(self._operands, number, value)
        return value

    def result(self, number: int, value: object) -> Any:
        """Records the result of a look-up or operator; returns it."""
        self._keep(self._results, number, value)
        return value

    def came(self, number: int, outcome: int) -> None:
        """Notes that a handler or a case was entered, or that a block under `try` came to its end."""
        self._pending[number] = self._pending.get(number, 0) | outcome

    def _keep(self, table: dict[int, set[Any]], number: int, value: object) -> None:
        if not isinstance(value, _COMPARABLE):
            return
        values = table.setdefault(number, set())
        if len(values) < max(LEAST_OPERANDS.values()):
            values.add(repr(value)[:MAX_REPR_CHARACTERS])


def compiled(text: str, path: str, recorder: ChoiceRecorder) -> CodeType:
    """Compiles a text with a recorder round its choices. Raises SyntaxError and RecursionError."""
    tree = parse_module(text)
    recorder.choices = choices_of(tree)
    numbers = {id(choice.node): number for number, choice in enumerate(recorder.choices)}
    with deep_recursion():
        changed = _Instrument(numbers, recorder.choices).visit(tree)
        return compile(ast.fix_missing_locations(changed), path, "exec", dont_inherit=True)


class _Instrument(ast.NodeTransformer):
    """Puts a call of the recorder round each choice."""

    def __init__(self, numbers: dict[int, int], choices: list[ChoicePoint]) -> None:
        self._numbers = numbers
        self._choices = choices

    def visit(self, node: ast.AST) -> Any:
        """Returns a node with its inner choices instrumented."""
        number = self._numbers.get(id(node))
        changed: Any = self.generic_visit(node)
        if isinstance(node, ast.Try):
            self._mark_end(node)
        if number is None:
            return changed
        kind = self._choices[number].kind
        if kind is ChoiceKind.CONDITION:
            return self._call(
                "answer" if isinstance(node, ast.Call) else "condition", number, changed
            )
        if kind is ChoiceKind.FOLD:
            return self._folding(number, changed)
        changed.body.insert(0, self._marker(number, TRUE, changed.body[0]))
        return changed

    def _folding(self, number: int, node: Any) -> ast.expr:
        if isinstance(node, ast.Subscript):
            node.slice = self._call("operand", number, node.slice)
        elif isinstance(node, ast.BinOp):
            node.left = self._call("operand", number, node.left)
        else:
            node.args[0] = self._call("operand", number, node.args[0])
        return self._call("result", number, node)

    def _mark_end(self, node: ast.Try) -> None:
        """Records for each handler that the block reached its last statement or, if that continues,
        the point after it."""
        last = node.body[-1]
        before = isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue)
        if before and len(node.body) == 1:
            return
        markers = [
            self._marker(n, FALSE, last)
            for h in node.handlers
            if (n := self._numbers.get(id(h))) is not None
        ]
        node.body[-1:] = [*markers, last] if before else [last, *markers]

    def _call(self, name: str, number: int, value: ast.expr) -> ast.expr:
        function = ast.Attribute(ast.Name(RECORDER, ast.Load()), name, ast.Load())
        made = ast.Call(function, [ast.Constant(number), value], [])
        return ast.copy_location(made, value)

    def _marker(self, number: int, outcome: int, near: ast.stmt) -> ast.stmt:
        function = ast.Attribute(ast.Name(RECORDER, ast.Load()), "came", ast.Load())
        made = ast.Expr(ast.Call(function, [ast.Constant(number), ast.Constant(outcome)], []))
        return ast.copy_location(copy.deepcopy(made), near)
