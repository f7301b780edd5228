"""Simplifies a kernel of Inductor: its runtime becomes helpers of the draft, and aliases, named constants and values
that are read once go.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator

from kernelwright.policies.inductor.writing.expressions.tidying import (
    simplify_conversion,
    tidy_kernel,
)
from kernelwright.policies.inductor.writing.helpers import helper_name

MAX_EXPRESSION_CHARACTERS = 92
"""Maximum length of an expression for inlining."""
SEARCH_ARGUMENTS = 8
"""Arguments of a search without a sorter."""
TEMPORARY_NAME = re.compile(r"_?tmp\d+$|[xyzr]\d*_?offset$")
CALLS_ON_THEIR_OWN_LINE = re.compile(
    r"\b(tl\.(load|dot|sum|cumsum|max|min|reduce|associative_scan|argmax|atomic)|row_|welford|any_of|select_one)"
)
"""Calls placed on separate lines."""


def simplify_kernel(function: ast.FunctionDef) -> ast.FunctionDef:
    """Simplifies the kernel; its names stay Inductor's."""
    kernel = copy.deepcopy(function)
    kernel.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    kernel.body = [s for s in kernel.body if not _is_assertion(s)]
    for statement in ast.walk(kernel):
        if isinstance(statement, ast.For):
            statement.body = [s for s in statement.body if not _is_assertion(s)]
    # 1. Replace Inductor's runtime by helpers of the draft.
    _Runtime().visit(kernel)
    _substitute(kernel, dict(_aliases(kernel)))
    _Constants(kernel).visit(kernel)
    drop_unused(kernel)
    # 2. Inline values that are read once.
    _without_broadcasts_of_products(kernel)
    _inline(kernel)
    tidy_kernel(kernel)
    _substitute(kernel, dict(_aliases(kernel)))
    drop_unused(kernel)
    _inline(kernel)
    tidy_kernel(kernel)
    return ast.fix_missing_locations(kernel)


def _without_broadcasts_of_products(function: ast.FunctionDef) -> None:
    """Removes broadcasts of `tl.dot` results, which have the accumulator's shape already."""
    products = {
        name for name, value in assignments(function) if ast.unparse(value).startswith("tl.dot(")
    }
    for node in ast.walk(function):
        value = node.value if isinstance(node, ast.Assign) else None
        wide = isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.broadcast_to"
        if (
            wide
            and isinstance(node, ast.Assign)
            and isinstance(value, ast.Call)
            and ast.unparse(value.args[0]) in products
        ):
            node.value = value.args[0]


def _is_assertion(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("tl.device_assert")


def without_runtime(function: ast.FunctionDef) -> None:
    """Own helpers and plain Triton in the place of Inductor's runtime, in place."""
    _Runtime().visit(function)


class _Runtime(ast.NodeTransformer):
    """Own helpers and plain Triton in the place of Inductor's runtime."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "eviction_policy"]
        name = ast.unparse(node.func)
        if name == "place_in_sorted":
            node.args = node.args[:SEARCH_ARGUMENTS]
        if name == "triton_helpers.promote_to_tensor":
            return node.args[0]
        if name.endswith(".to") and isinstance(node.func, ast.Attribute):
            return simplify_conversion(node, node.func)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner == "triton_helpers":
            return ast.Name(helper_name(node.attr), ast.Load())
        if owner == "tl_math":
            return ast.parse(f"tl.math.{node.attr}", mode="eval").body
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`tl.arange(0, XBLOCK)[:]` is the range itself."""
        self.generic_visit(node)
        return (
            node.value
            if isinstance(node.slice, ast.Slice) and ast.unparse(node.slice) == ":"
            else node
        )


def assignments(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yields name and value of every assignment to a single name."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            yield node.targets[0].id, node.value
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            yield node.target.id, node.value


def _aliases(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Names that stand for another name wherever they are assigned."""
    values: dict[str, set[str]] = {}
    for name, value in assignments(function):
        values.setdefault(name, set()).add(ast.unparse(value))
    several = {
        name for name, count in Counter(n for n, _ in assignments(function)).items() if count > 1
    }
    for name, texts in values.items():
        # A name is an alias if every assignment to it has the same name on the right.
        other = next(iter(texts))
        moving = other in several and other.startswith("_tmp")
        if len(texts) == 1 and other.isidentifier() and not moving and not name.startswith("_tmp"):
            while (
                len(values.get(other, ())) == 1
                and (further := next(iter(values[other]))).isidentifier()
            ):
                other = further
            yield name, ast.Name(other, ast.Load())


class _Substituting(ast.NodeTransformer):
    def __init__(self, new: dict[str, ast.expr]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._new:
            return copy.deepcopy(self._new[node.id])
        return node


def _substitute(tree: ast.AST, new: dict[str, ast.expr]) -> None:
    if new:
        _Substituting(new).visit(tree)


class _Constants(ast.NodeTransformer):
    """Replaces `tl.full([1], 2.0, tl.float32)` by a number if the other operand determines the
    type.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self._values: dict[str, tuple[ast.expr, str]] = {}
        counted = Counter(name for name, _ in assignments(function))
        for name, value in assignments(function):
            if (
                isinstance(value, ast.Call)
                and ast.unparse(value.func) == "tl.full"
                and counted[name] == 1
            ):
                self._values[name] = (value.args[1], ast.unparse(value.args[2]))

    def _constant(self, node: ast.expr, compared: bool) -> ast.expr | None:
        constant = self._values.get(node.id) if isinstance(node, ast.Name) else None
        fits = constant is not None and (
            constant[1] in ("tl.float32", "tl.int32") or (compared and constant[1] == "tl.int64")
        )
        return copy.deepcopy(constant[0]) if constant is not None and fits else None

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Replaces a stored constant tensor by a number; a store converts to the pointer's type."""
        self.generic_visit(node)
        if (
            ast.unparse(node.func) == "tl.store"
            and (value := self._constant(node.args[1], True)) is not None
        ):
            node.args[1] = value
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        left, right = self._constant(node.left, False), self._constant(node.right, False)
        if (left is None) != (right is None) and isinstance(
            node.op, ast.Add | ast.Sub | ast.Mult | ast.Div
        ):
            node.left, node.right = left or node.left, right or node.right
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        left, right = self._constant(node.left, True), self._constant(node.comparators[0], True)
        if (left is None) != (right is None):
            node.left, node.comparators = left or node.left, [right or node.comparators[0]]
        return node


def count_reads(tree: ast.AST) -> Counter[str]:
    """How often each name is read."""
    return Counter(
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def drop_unused(function: ast.FunctionDef) -> None:
    """Removes assignments to names that nothing reads, until there are none."""
    while True:
        read = count_reads(function)
        dropped = False
        for body in statement_lists(function):
            remaining = [s for s in body if not (_target(s) and read[_target(s)] == 0)]
            dropped = dropped or len(remaining) < len(body)
            body[:] = remaining or [ast.Pass()]
        if not dropped:
            return


def statement_lists(function: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements of a function and of its loops."""
    return [n.body for n in ast.walk(function) if isinstance(n, ast.FunctionDef | ast.For | ast.If)]


def _target(statement: ast.stmt) -> str:
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [getattr(statement, "target", None)]
    )
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) and not isinstance(statement,
        ast.For) else ""  # fmt: skip


def _inline(function: ast.FunctionDef) -> None:
    """Inlines values read once, if no operand changes in between."""
    read = count_reads(function)
    counted = Counter(name for name, _ in assignments(function))
    facts = _StatementFacts()
    again = True
    while again:
        again = False
        for body in statement_lists(function):
            position = 0
            while position < len(body):
                name = _target(body[position])
                once = TEMPORARY_NAME.match(name) and read[name] == 1 and counted[name] == 1
                if once and _put_into_its_use(body, position, facts):
                    again = True
                else:
                    position += 1


class _StatementFacts:
    """Cache of the names and texts of statements, which halves the time of writing.

    Facts of a loop stay valid when a name inside the loop is inlined, because no other statement
    has that name.
    """

    def __init__(self) -> None:
        self._texts: dict[ast.AST, str] = {}
        self._reads: dict[ast.AST, Counter[str]] = {}
        self._stores: dict[ast.AST, set[str]] = {}

    def text(self, node: ast.AST) -> str:
        """Returns the source text of a node."""
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    def reads(self, node: ast.AST) -> Counter[str]:
        """Returns how often the node reads each name."""
        if node not in self._reads:
            self._reads[node] = count_reads(node)
        return self._reads[node]

    def stores(self, node: ast.AST) -> set[str]:
        """Returns the names the node assigns."""
        if node not in self._stores:
            names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            self._stores[node] = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        return self._stores[node]

    def forget(self, statement: ast.Assign | ast.AnnAssign | ast.Expr) -> None:
        """Drops the cached facts of a changed statement."""
        for node in (statement, statement.value):
            if node is not None:
                self._texts.pop(node, None)
                self._reads.pop(node, None)


def _put_into_its_use(body: list[ast.stmt], position: int, facts: _StatementFacts) -> bool:
    statement = body[position]
    assert isinstance(statement, ast.Assign | ast.AnnAssign)
    name, value = _target(statement), statement.value
    assert value is not None
    text = facts.text(value)
    if CALLS_ON_THEIR_OWN_LINE.search(text):
        return False
    # Names assigned between the definition and its use: an operand among them forbids inlining.
    changed: set[str] = set()
    for later in body[position + 1 :]:
        if facts.reads(later)[name]:
            if not isinstance(later, ast.Assign | ast.AnnAssign | ast.Expr) or changed & set(
                facts.reads(value)
            ):
                return False
            if len(facts.text(later)) + len(text) > MAX_EXPRESSION_CHARACTERS + 8:
                return False
            facts.forget(later)
            _substitute(later, {name: value})
            body.pop(position)
            return True
        changed |= facts.stores(later)
    return False


def rename_in_place(tree: ast.AST, new: Callable[[str], str]) -> None:
    """Renames names and parameters in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new(node.id)
        elif isinstance(node, ast.arg):
            node.arg = new(node.arg)
