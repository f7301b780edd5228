"""Ranges of the integers of a kernel at known arguments, and whether they fit the 32 bits that Triton gives them.

Example: row = tl.program_id(0) of a grid of 600,000 programs is 0 to 599,999 in 32 bits. row * 4096 reaches
2,457,595,904, which wraps; row.to(tl.int64) * 4096 does not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

INT32 = (-(1 << 31), (1 << 31) - 1)
LARGEST = 1 << 70
"""Numbers beyond this are not followed."""
CLEAR_EXCESS = 1 << 25
"""Beyond 32 bits by so much, a bound is no matter of the last block's masked lanes."""


@dataclass(frozen=True)
class Wrap:
    """An expression of 32 bits whose value does not fit."""

    line: int
    """In the function's text, from 1."""
    expression: str
    reaches: int
    certain: bool
    """Whether some program computes the value; otherwise it is a bound that may be too coarse."""


@dataclass(frozen=True)
class Range:
    """The values that an integer takes over the programs and lanes of a launch."""

    low: int
    high: int
    wide: bool = False
    """Whether it has 64 bits."""
    sources: frozenset[str] = frozenset()
    """Axes of the grid and lanes that it is computed from."""
    exact: bool = True
    """Whether both bounds are taken by some program."""
    dense: bool = False
    """Whether every number between the bounds is taken, too."""
    wrap: Wrap | None = None
    """Where it wrapped on its way."""

    @property
    def is_constant(self) -> bool:
        """Whether every program and lane has the one value."""
        return self.low == self.high and self.exact


def constant(value: int) -> Range:
    """Returns the range of one number, which has 64 bits where it needs them."""
    return Range(value, value, wide=not INT32[0] <= value <= INT32[1])


def joined(first: Range, second: Range) -> Range:
    """Returns the range of a value that is either."""
    return Range(
        min(first.low, second.low), max(first.high, second.high), first.wide or second.wide,
        first.sources | second.sources, exact=False, wrap=first.wrap or second.wrap,
    )  # fmt: skip


def computed(node: ast.BinOp, left: Range, right: Range) -> Range | None:
    """Returns the range of an arithmetic expression; None for one that is not followed. One that does not fit into 32
    bits carries where it wrapped.
    """
    bounds = _bounds(node.op, left, right)
    if bounds is None or max(map(abs, bounds)) > LARGEST:
        return None
    low, high = min(bounds), max(bounds)
    apart = left.sources.isdisjoint(right.sources)
    mixes = isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
    exact = left.exact and right.exact and (apart if mixes else right.is_constant)
    steady = right.is_constant or (isinstance(node.op, ast.Add) and left.is_constant)
    dense = left.dense and steady and not isinstance(node.op, ast.Mult)
    if isinstance(node.op, ast.Mod):
        exact = exact and dense and left.low == 0
    wide = left.wide or right.wide
    wrap = _wrap(node, left, right, (low, high), exact) if mixes else None
    return Range(low, high, wide, left.sources | right.sources, exact, dense, wrap)


def _wrap(
    node: ast.BinOp, left: Range, right: Range, bounds: tuple[int, int], exact: bool
) -> Wrap | None:
    """Where a sum, difference or product wrapped. In 32 bits a result that fits is right whatever wrapped before."""
    low, high = bounds
    wide = left.wide or right.wide
    if not wide and INT32[0] <= low <= high <= INT32[1]:
        return None
    for before, other in ((left, right), (right, left)):
        if before.wrap is not None:
            grows = isinstance(node.op, ast.Add) and before.wrap.reaches > 0 and other.low >= 0
            return replace(before.wrap, certain=before.wrap.certain and (exact or grows))
    if wide:
        return None
    reaches = high if high > INT32[1] else low
    clear = reaches > INT32[1] + CLEAR_EXCESS or reaches < INT32[0] - CLEAR_EXCESS
    return Wrap(node.lineno, ast.unparse(node), reaches, certain=exact and clear)


def _bounds(operation: ast.operator, left: Range, right: Range) -> list[int] | None:
    ends = [(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    if isinstance(operation, ast.Add):
        return [a + b for a, b in ends]
    if isinstance(operation, ast.Sub):
        return [a - b for a, b in ends]
    if isinstance(operation, ast.Mult):
        return [a * b for a, b in ends]
    if left.low < 0 or right.low <= 0:
        return None
    if isinstance(operation, ast.FloorDiv):
        return [a // b for a, b in ends]
    if isinstance(operation, ast.Mod):
        if left.is_constant and right.is_constant:
            return [left.low % right.low]
        return [0, min(left.high, right.high - 1)]
    return None


def widened(value: Range) -> Range:
    """Returns the value after `.to(tl.int64)`: a wrap before it stays."""
    return replace(value, wide=True)
