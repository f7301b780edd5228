"""Finds decisions in a host code's source, by syntax alone, so that both sides of tracing number
them alike.

    if rows > 64 and x.is_contiguous():   # two conditions
        share = TABLE[rows % 7]           # a look-up, and a remainder
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = tuple[ast.AST, ...]
"""The functions and classes around a choice, the innermost last."""
FOLDING_OPERATORS = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.BitOr, ast.BitXor, ast.RShift)
"""Operators that may yield a single number for many operands."""
LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
"""Arguments of a launch that change no answer."""
MAX_CHOICES = 4096
MAX_RECURSION = 50_000
"""Frames for a sum of some thousand terms, which is a tree as deep."""
TRUE, FALSE, STUCK = 1, 2, 4
"""Bit flags of a trace about a choice; STUCK: its result stayed the same while its operand changed.
"""


class ChoiceKind(StrEnum):
    """Kind of a choice, which determines the recorded data."""

    CONDITION = "condition"
    """An expression that is true or false."""
    FOLD = "fold"
    """A look-up or an operator: whether its result stayed the same while its operand changed."""
    HANDLER = "handler"
    """Whether an exception was handled (true), and whether the block under `try` came to its end (false)."""
    CASE = "case"
    """Whether a case of a `match` was taken."""


class ChoicePoint(NamedTuple):
    """One choice of the host code."""

    kind: ChoiceKind
    node: ast.AST
    scope: Scope
    harmless: bool
    """An unseen outcome only raises, copies, or sets values without effect on the answer."""


def choices_of(tree: ast.Module) -> list[ChoicePoint]:
    """Returns the choices in a source in a fixed order.

    Those in kernels are included, but never recorded: Triton reads a kernel's source and does not
    run it.
    """
    with deep_recursion():
        finder = _Finder(_option_names(tree))
        finder.block(tree.body)
    return finder.choices[:MAX_CHOICES]


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Context manager that lets Python functions recurse as deep as the parser."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MAX_RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Finder:
    """Walks through a text and notes its choices."""

    def __init__(self, option_names: frozenset[str]) -> None:
        """option_names: names used only as options of launches."""
        self._option_names = option_names
        self.choices: list[ChoicePoint] = []
        self._scope: Scope = ()

    def block(self, statements: list[ast.stmt]) -> None:
        """Notes the choices of statements, one after the other."""
        for statement in statements:
            self._visit(statement)

    def _add(self, kind: ChoiceKind, node: ast.AST, harmless: bool) -> None:
        self.choices.append(ChoicePoint(kind, node, self._scope, harmless))

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assert | ast.arg):  # an annotation is no choice
            return
        handler = getattr(self, f"_visit_{type(node).__name__}", None)
        if handler is not None:
            handler(node)
        else:
            self._children(node)

    def _children(self, node: ast.AST) -> None:
        scoped = isinstance(node, Function | ast.ClassDef)
        self._scope = (*self._scope, node) if scoped else self._scope
        annotation = getattr(node, "returns", None)
        for child in ast.iter_child_nodes(node):
            if child is not annotation:
                self._visit(child)
        self._scope = self._scope[:-1] if scoped else self._scope

    # -------------------------------------------------------------- conditions
    def _condition(self, node: ast.expr, harmless: bool) -> None:
        """Notes each part of a condition that is decided by itself."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._condition(value, harmless)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._condition(node.operand, harmless)
        else:
            self._add(ChoiceKind.CONDITION, node, harmless)
            self._children(node)

    def _visit_If(self, node: ast.If) -> None:
        harmless = only_refuses(node.body) or (bool(node.orelse) and only_refuses(node.orelse))
        harmless = (
            harmless or _guards_the_empty(node) or self._sets_options([*node.body, *node.orelse])
        )
        self._condition(node.test, harmless)
        self.block(node.body)
        self.block(node.orelse)

    def _visit_While(self, node: ast.While) -> None:
        self._condition(node.test, False)
        self.block([*node.body, *node.orelse])

    def _visit_IfExp(self, node: ast.IfExp) -> None:
        copies = any(_copies(a, b) for a, b in ((node.body, node.orelse), (node.orelse, node.body)))
        self._condition(node.test, copies or node in self._options)
        self._visit(node.body)
        self._visit(node.orelse)

    def _visit_BoolOp(self, node: ast.BoolOp) -> None:
        for value in node.values[:-1]:
            if isinstance(value, ast.ListComp):  # whether it is empty follows from its conditions
                self._visit(value)
            else:
                self._condition(value, node in self._options)
        self._visit(node.values[-1])

    def _visit_Compare(self, node: ast.Compare) -> None:
        self._condition(node, node in self._options)

    def _visit_comprehension(self, node: ast.comprehension) -> None:
        self._visit(node.iter)
        for test in node.ifs:
            self._condition(test, False)

    # -------------------------------------------------------------- other choices
    def _visit_Call(self, node: ast.Call) -> None:
        is_get = (
            isinstance(node.func, ast.Attribute) and node.func.attr == "get" and bool(node.args)
        )
        self._add(ChoiceKind.FOLD if is_get else ChoiceKind.CONDITION, node, False)
        self._children(node)

    def _visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) and not isinstance(
            node.slice, ast.Constant | ast.Slice | ast.Tuple
        ):
            self._add(ChoiceKind.FOLD, node, False)
        self._children(node)

    def _visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, FOLDING_OPERATORS) and not isinstance(node.left, ast.Constant):
            self._add(ChoiceKind.FOLD, node, False)
        self._children(node)

    def _visit_Try(self, node: ast.Try) -> None:
        for handler in node.handlers:
            self._add(ChoiceKind.HANDLER, handler, only_refuses(handler.body))
        self._children(node)

    def _visit_match_case(self, node: ast.match_case) -> None:
        self._add(ChoiceKind.CASE, node, only_refuses(node.body))
        self._children(node)

    def _visit_keyword(self, node: ast.keyword) -> None:
        self._in_option(node.value, node.arg in LAUNCH_OPTIONS)

    def _visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit(node.value)

    def _visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        self._in_option(node.value, bool(names) and names <= self._option_names)
        for target in node.targets:
            self._visit(target)

    def _sets_options(self, statements: list[ast.stmt]) -> bool:
        """Returns True for a block that only sets options of a launch, or is empty."""
        for statement in statements:
            if isinstance(statement, ast.If):
                if not self._sets_options([*statement.body, *statement.orelse]):
                    return False
            elif not (
                isinstance(statement, ast.Assign) and _names_of(statement) <= self._option_names
            ):
                return False
        return True

    _options: frozenset[ast.AST] = frozenset()
    """Nodes of a value that is an option of a launch."""

    def _in_option(self, value: ast.expr, is_option: bool) -> None:
        before = self._options
        self._options = frozenset(ast.walk(value)) if is_option else before
        self._visit(value)
        self._options = before


def _option_names(tree: ast.Module) -> frozenset[str]:
    """Returns names passed as options of launches and read nowhere else."""
    option_values = [
        k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg in LAUNCH_OPTIONS
    ]
    as_options = {id(value) for value in option_values}
    names = {value.id for value in option_values if isinstance(value, ast.Name)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and id(node) not in as_options
        ):
            names.discard(node.id)
    return frozenset(names)


# ------------------------------------------------------------------ branches that change no answer
def only_refuses(statements: list[ast.stmt]) -> bool:
    """Returns True for a block that raises, or only copies tensors."""
    if not statements:
        return False
    if isinstance(statements[-1], ast.Raise):
        return True
    return all(isinstance(s, ast.Pass | ast.Assert) or _is_copy(s) for s in statements)


def _is_copy(statement: ast.stmt) -> bool:
    """Returns True for `x = x.contiguous()`."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return False
    target = statement.targets[0]
    return _copies(statement.value, target)


def _copies(value: ast.expr, of: ast.expr) -> bool:
    """Returns True if `value` is a contiguous copy of `of`."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return False
    return value.func.attr in ("contiguous", "clone") and ast.unparse(
        value.func.value
    ) == ast.unparse(of)


def _guards_the_empty(node: ast.If) -> bool:
    """Returns True for `if rows == 0: return ...`: no size of a problem is empty."""
    if not isinstance(node.body[-1], ast.Return):
        return False
    return all(_is_empty_test(part) for part in _parts(node.test))


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
    else:
        yield test


def _is_empty_test(test: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return False
    left = test.left
    right = test.comparators[0]
    if isinstance(test.ops[0], ast.In):
        return isinstance(left, ast.Constant) and left.value == 0
    return (
        isinstance(test.ops[0], ast.Eq | ast.LtE)
        and isinstance(right, ast.Constant)
        and right.value == 0
    )


def _names_of(statement: ast.Assign) -> set[str]:
    """Returns the names bound by an assignment; an empty name for other targets."""
    targets: list[ast.expr] = []
    for target in statement.targets:
        targets += target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return {target.id if isinstance(target, ast.Name) else "" for target in targets}
