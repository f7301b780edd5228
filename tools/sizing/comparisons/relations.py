"""Extracts comparisons from a candidate's source, as relations between the extents of a problem.

A relation has at most three variables, which are opaque parts of the source (`K`, `x.shape[0]`,
`x.numel()`), and numbers. The extent behind a variable is unknown: the variable is bound to each
extent in turn, or only to the extent of equal name if there is one. Both outcomes of a relation are
of interest.

Example: `half = K // 2` and later `if half == M` give the relation `K // 2 == M` over the variables
K and M.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.sizing.arithmetic import is_power_of_two
from kernelwright.tools.sizing.comparisons.expressions import (
    FUNCTIONS,
    NotANumber,
    constant_value,
    evaluate,
)

MAX_SYNTAX_NODES = 200_000
"""Nodes of a candidate's syntax tree that are looked through."""
MAX_BLOCK_SIZE = 1 << 17
MAX_RELATIONS = 24
MAX_VARIABLES = 3
MAX_RELATION_NODES = 60
"""Nodes of the expression of one relation."""
MAX_INLINED = 4
"""Maximum number of steps in which names are replaced by their assigned values."""
LANE_CALLS = ("arange", "program_id", "load", "zeros", "full")
"""Triton functions whose results are no extents: a mask compares them at every size."""
EXTENT_CALLS = (
    "size",
    "numel",
    "stride",
    "dim",
    "len",
    "num_programs",
    "element_size",
    "ndimension",
    "nelement",
)
"""Functions whose results are extents or follow from them."""
EXTENTS_BEYOND_TYPES = {"int16": (1 << 15) + 1, "uint16": (1 << 16) + 1}
"""The first extent of which an integer type cannot hold every index."""
Tree = ast.Module | None


class Relation:
    """One comparison of a text, over its variables."""

    def __init__(self, node: ast.expr, variables: tuple[str, ...]) -> None:
        self._node = node
        self.text = ast.unparse(node)
        self.variables = variables
        self.numbers = tuple(
            sorted({n for part in ast.walk(node) if (n := constant_value(part)) is not None})
        )
        """Integers in the relation, as literals or as arithmetic."""

    def holds(self, values: Mapping[str, int]) -> bool | None:
        """Evaluates the relation for these values of its variables; None if undefined."""
        try:
            return bool(evaluate(self._node, values))
        except NotANumber:
            return None

    @functools.cached_property
    def comparisons(self) -> list[ast.Compare]:
        """Returns the two-sided comparisons that make up the relation."""
        return [
            part
            for part in ast.walk(self._node)
            if isinstance(part, ast.Compare) and len(part.ops) == 1
        ]


def difference(comparison: ast.Compare, values: Mapping[str, int]) -> float | None:
    """Returns the left side minus the right side of a comparison; None if undefined."""
    try:
        return evaluate(comparison.left, values) - evaluate(comparison.comparators[0], values)
    except NotANumber:
        return None


def numbers_in(source: str) -> tuple[int, ...]:
    """Returns the integers over 8 that a text names, each once: block sizes first, thresholds after them."""
    return _numbers_in(source)


@functools.lru_cache(maxsize=16)
def _numbers_in(source: str) -> tuple[int, ...]:
    nodes = itertools.islice(ast.walk(_tree(source) or ast.Module([], [])), MAX_SYNTAX_NODES)
    values = (constant_value(node) for node in nodes if isinstance(node, ast.Constant | ast.BinOp))
    numbers = {n for n in values if n is not None and n > 8}
    powers = sorted(n for n in numbers if is_power_of_two(n) and n <= MAX_BLOCK_SIZE)
    return (*powers, *sorted(numbers.difference(powers)))


def extents_beyond_types(source: str) -> tuple[int, ...]:
    """Returns the first extents beyond the integer types of 16 bits that a text names: an index, or the number of a
    program, may be cut to such a type.
    """
    nodes = itertools.islice(ast.walk(_tree(source) or ast.Module([], [])), MAX_SYNTAX_NODES)
    types = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return tuple(most for name, most in EXTENTS_BEYOND_TYPES.items() if name in types)


@functools.lru_cache(maxsize=16)
def relations_in(source: str) -> tuple[Relation, ...]:
    """Returns the relations of a source, those with a literal or an equation first; empty if the
    source is not Python."""
    tree = _tree(source)
    if tree is None:
        return ()
    relations: dict[str, Relation] = {}
    constants = _constants(tree)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    for function in functions:
        assigned = constants | _assigned_once(function)
        for node in _comparisons(function):
            relation = _relation(_inlined(node, assigned))
            if relation is not None:
                relations.setdefault(relation.text, relation)
    return tuple(sorted(relations.values(), key=_rank)[:MAX_RELATIONS])


def _tree(source: str) -> Tree:
    try:
        return parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _rank(relation: Relation) -> tuple[bool, int]:
    """Orders equations and remainders first, then thresholds, then orders of two variables."""
    parts = list(ast.walk(relation._node))
    equation = any(
        isinstance(part, ast.Eq | ast.NotEq | ast.Mod | ast.In | ast.NotIn) for part in parts
    )
    has_number = any(isinstance(part, ast.Constant) for part in parts)
    return (not equation and not has_number, len(relation.variables))


def _comparisons(function: ast.AST) -> Iterator[ast.expr]:
    """Yields decisions: comparisons, tests of branches, the two sides of min and max, remainders."""
    for node in itertools.islice(ast.walk(function), MAX_SYNTAX_NODES):
        if isinstance(node, ast.Compare | ast.BoolOp) or (
            isinstance(node, ast.BinOp) and _joins_comparisons(node)
        ):
            yield node
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
            node.test, ast.Compare | ast.BoolOp
        ):
            yield node.test
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
            remainder = ast.BinOp(node.left, ast.Mod(), node.right)
            yield ast.Compare(remainder, [ast.Eq()], [ast.Constant(0)])
        elif isinstance(node, ast.Call) and len(node.args) == 2:
            name = _called(node)
            if name in ("min", "max", "minimum", "maximum"):
                yield ast.Compare(node.args[0], [ast.Lt()], [node.args[1]])


def _joins_comparisons(node: ast.BinOp) -> bool:
    """Says whether arithmetic joins two comparisons: `(a == b) & (c > d)`, `(a == b) * (c > d)`."""
    if not isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Mult):
        return False
    return all(
        any(isinstance(n, ast.Compare) for n in ast.walk(side)) for side in (node.left, node.right)
    )


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns whole numbers that the module binds to names which nothing else is bound to: `ONE_BLOCK = 1 << 14`."""
    bound = Counter(
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    bound += Counter(n.arg for n in ast.walk(tree) if isinstance(n, ast.arg))
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if bound[name] == 1 and constant_value(value) is not None:
                    constants[name] = value
    return constants


def _assigned_once(function: ast.AST) -> dict[str, ast.expr]:
    """Returns the names to which a function assigns arithmetic in one place, with the expression."""
    stores = Counter(
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    assigned: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(node.value, ast.Call)
            and _called(node.value) == "divmod"
        ):
            parts = (
                ast.BinOp(node.value.args[0], op, node.value.args[-1])
                for op in (ast.FloorDiv(), ast.Mod())
            )
            pairs = list(zip(target.elts, parts, strict=False))
        for name, value in pairs:
            arithmetic = isinstance(
                value, ast.BinOp | ast.Constant | ast.UnaryOp | ast.Compare | ast.BoolOp
            )
            known_call = isinstance(value, ast.Call) and _called(value) in (*FUNCTIONS, *LANE_CALLS)
            if isinstance(name, ast.Name) and stores[name.id] == 1 and (arithmetic or known_call):
                assigned[name.id] = value
    return assigned


class _Inlining(ast.NodeTransformer):
    """Replaces names by their assigned values."""

    def __init__(self, assigned: Mapping[str, ast.expr]) -> None:
        self._assigned = assigned

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._assigned.get(node.id, node)


def _inlined(node: ast.expr, assigned: Mapping[str, ast.expr]) -> ast.expr:
    for _ in range(MAX_INLINED):
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if not names & assigned.keys() or _count_nodes(node) > MAX_RELATION_NODES:
            break
        node = _Inlining(assigned).visit(copy.deepcopy(node))
    return node


def _count_nodes(node: ast.AST) -> int:
    return sum(1 for _ in itertools.islice(ast.walk(node), MAX_RELATION_NODES + 1))


def _relation(node: ast.expr) -> Relation | None:
    if _count_nodes(node) > MAX_RELATION_NODES:
        return None
    try:
        variables = tuple(dict.fromkeys(_variables(node)))
    except NotANumber:
        return None
    return Relation(node, variables) if 1 <= len(variables) <= MAX_VARIABLES else None


def _variables(node: ast.AST) -> Iterator[str]:
    """Yields the opaque parts of an expression, as text. Raises NotANumber for a part that cannot
    be an extent."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield ast.unparse(node)
    elif isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Constant | ast.UnaryOp):
            raise NotANumber
        yield ast.unparse(node)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
    ):
        yield from _variables(node.func.value)
    elif isinstance(node, ast.Call) and _called(node) not in (*FUNCTIONS, "len", "range"):
        if _called(node) not in EXTENT_CALLS:
            raise NotANumber
        yield ast.unparse(node)
    elif isinstance(node, ast.Call) and constant_value(node) is None:
        for argument in node.args:
            yield from _variables(argument)
    elif constant_value(node) is not None:
        return
    elif isinstance(node, ast.Constant):
        evaluate(node, {})
    else:
        for child in ast.iter_child_nodes(node):
            yield from _variables(child)


def _called(node: ast.Call) -> str:
    """Returns the name of a called function, without that of its module."""
    return ast.unparse(node.func).rpartition(".")[2]
