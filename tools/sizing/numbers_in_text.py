"""The numbers that a candidate's text names: block sizes, and the thresholds at which it may do something else."""

from __future__ import annotations

import ast
import functools
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterator

from kernelwright.tools.parsing import parse_module

MAX_SYNTAX_NODES = 200_000
"""Nodes of a candidate's syntax tree that are looked through for numbers."""
MAX_BLOCK_SIZE = 1 << 17
MAX_COMPARED_NUMBERS = 3
"""Numbers in comparisons of a text whose other side is always looked at."""
MAX_THRESHOLDS = 12
MAX_DIVISORS = 2
"""Numbers of a text by which it divides with a remainder, whose multiples are always tried."""
MIN_POWER, MAX_POWERS = 128, 2
"""The least of the powers of two in a text's comparisons and differences that are gone beyond, too, and how many of the
largest are: a window, or the length from which on something else is done.
"""


def thresholds_in(source: str) -> tuple[int, ...]:
    """Returns those numbers of a text that are over 16 and no power of two: sizes at which it may do something else."""
    return tuple(n for n in numbers_in(source) if n > 16 and n & (n - 1))[:MAX_THRESHOLDS]


def compared_in(source: str) -> tuple[int, ...]:
    """Numbers over 16 and no power of two that a text compares something with, written out or as arithmetic."""
    found = dict.fromkeys(n for node in _nodes(source) for n in _compared_integers(node) if n > 16 and n & (n - 1))
    return tuple(found)[:MAX_COMPARED_NUMBERS]


def powers_in(source: str) -> tuple[int, ...]:
    """The largest powers of two that a text compares something with, or takes off it or adds to it."""
    found = {n for node in _nodes(source) for n in _compared_integers(node)}
    for node in _nodes(source):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Add):
            found |= {n for side in (node.left, node.right) if (n := _fold_constants(side)) is not None}
    powers = [n for n in found if MIN_POWER <= n <= MAX_BLOCK_SIZE and not n & (n - 1)]
    return tuple(sorted(powers, reverse=True)[:MAX_POWERS])


def divisors_in(source: str) -> tuple[int, ...]:
    """Numbers over 8 and no power of two whose remainder a text asks for."""
    rests = (n for n in _nodes(source) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod))
    found = dict.fromkeys(n for rest in rests if (n := _fold_constants(rest.right)) is not None)
    return tuple(n for n in found if 8 < n <= MAX_BLOCK_SIZE and n & (n - 1))[:MAX_DIVISORS]


@functools.lru_cache(maxsize=16)
def _nodes(source: str) -> tuple[ast.Compare | ast.BinOp, ...]:
    """Comparisons and arithmetic of a text, in order; none of one that is no Python."""
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    every = itertools.islice(ast.walk(tree), MAX_SYNTAX_NODES)
    return tuple(node for node in every if isinstance(node, ast.Compare | ast.BinOp))


def _compared_integers(node: ast.Compare | ast.BinOp) -> list[int]:
    """Returns the integers among what is compared, and among arguments of calls and elements there; none of sums."""
    if isinstance(node, ast.BinOp):
        return []
    sides = (_fold_constants(part) for side in (node.left, *node.comparators) for part in (side, *_arguments(side)))
    return [n for n in sides if n is not None]


def numbers_in(source: str) -> list[int]:
    """Integers over 8 that a text names, each once: block sizes and thresholds. Bounded, without recursion."""
    return list(_numbers_in(source))


@functools.lru_cache(maxsize=16)
def _numbers_in(source: str) -> tuple[int, ...]:
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = {n for n in _integers(tree) if 8 < n <= 1 << 40}
    powers = sorted(n for n in found if n & (n - 1) == 0 and n <= MAX_BLOCK_SIZE)
    return (*powers, *sorted(n for n in found if n not in powers))


def _integers(tree: ast.AST) -> Iterator[int]:
    waiting = deque([tree])
    for _ in range(MAX_SYNTAX_NODES):
        if not waiting:
            return
        node = waiting.popleft()
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) < 1e12:
            yield int(node.value)
        if isinstance(node, ast.BinOp) and (value := _fold_constants(node)) is not None:
            yield value
        waiting.extend(ast.iter_child_nodes(node))


def _arguments(node: ast.AST) -> list[ast.expr]:
    """Returns the arguments of a call, or the elements of a sequence: `range(1500, 3700)`, `(3, 5)`."""
    return node.args if isinstance(node, ast.Call) else list(getattr(node, "elts", ()))


def _fold_constants(node: ast.AST, depth: int = 8) -> int | None:
    """The whole number that arithmetic on literals gives, or the length of a text that is written out, up to 2**40.
    None where it is neither.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        return _length(node.args[0])
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1 << 40:
            return None
        return int(value) if float(value).is_integer() else None
    if not isinstance(node, ast.BinOp) or not depth:
        return None
    left, right = _fold_constants(node.left, depth - 1), _fold_constants(node.right, depth - 1)
    work = _FOLDABLE_OPERATORS.get(type(node.op))
    if left is None or right is None or work is None:
        return None
    found = work(left, right) if right <= _MAX_EXPONENT.get(type(node.op), right) else None
    return found if found is not None and 0 <= found <= 1 << 40 else None


def _length(node: ast.AST) -> int | None:
    """Returns the length of a text or a list that is written out, perhaps repeated; None of anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (_length(node.left), _fold_constants(node.right)), (_length(node.right), _fold_constants(node.left))
        found = [one * times for one, times in sides if one is not None and times is not None]
        return found[0] if found and found[0] <= 1 << 40 else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return len(node.value)
    return len(node.elts) if isinstance(node, ast.List | ast.Tuple) else None


_FOLDABLE_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.Pow: operator.pow, ast.FloorDiv: lambda a, b: a // b if b else 0, ast.RShift: operator.rshift,
}  # fmt: skip
_MAX_EXPONENT: dict[type[ast.operator], int] = {ast.LShift: 40, ast.Pow: 40, ast.RShift: 40}
