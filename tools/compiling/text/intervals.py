"""Ranges of a kernel's integers at known arguments, and whether they fit Triton's 32 bits.

Example: row = tl.program_id(0) of a grid of 600,000 programs is 0 to 599,999 in 32 bits. row *
4096 reaches 2,457,595,904, which wraps; row.to(tl.int64) * 4096 does not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

INT32 = (-(1 << 31), (1 << 31) - 1)
LARGEST_BOUND = 1 << 70
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
    """Whether some program computes the value; otherwise the bound may be too coarse."""


@dataclass(frozen=True)
class Range:
    """Values of an integer over the programs and lanes of a launch."""

    low: int
    high: int
    wide: bool = False
    """Whether the integer has 64 bits."""
    sources: frozenset[str] = frozenset()
    """Grid axes and lanes from which the integer is computed."""
    exact: bool = True
    """Whether both bounds are taken by some program."""
    dense: bool = False
    """Whether every number between the bounds is taken, too."""
    wrap: Wrap | None = None
    """Position of the first overflow, if any."""

    @property
    def is_constant(self) -> bool:
        """Returns whether every program and lane has the same value."""
        return self.low == self.high and self.exact


def constant(value: int) -> Range:
    """Returns the range of a single number, with 64 bits if needed."""
    return Range(value, value, wide=not INT32[0] <= value <= INT32[1])


def joined(first: Range, second: Range) -> Range:
    """Returns the range of a value from either range."""
    return Range(
        min(first.low, second.low),
        max(first.high, second.high),
        first.wide or second.wide,
        first.sources | second.sources,
        exact=False,
        wrap=first.wrap or second.wrap,
    )


def computed(node: ast.BinOp, lhs: Range, right: Range) -> Range | None:
    """Returns the range of an arithmetic expression; None if unsupported. A result beyond 32 bits
    carries the position of the overflow.
    """
    bounds = _bounds(node.op, lhs, right)
    if bounds is None or max(map(abs, bounds)) > LARGEST_BOUND:
        return None
    low = min(bounds)
    high = max(bounds)
    independent = lhs.sources.isdisjoint(right.sources)
    mixes = isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
    exact = lhs.exact and right.exact and (independent if mixes else right.is_constant)
    steady = right.is_constant or (isinstance(node.op, ast.Add) and lhs.is_constant)
    dense = lhs.dense and steady and not isinstance(node.op, ast.Mult)
    if isinstance(node.op, ast.Mod):
        exact = exact and dense and lhs.low == 0
    wide = lhs.wide or right.wide
    wrap = _wrap(node, lhs, right, (low, high), exact) if mixes else None
    return Range(low, high, wide, lhs.sources | right.sources, exact, dense, wrap)


def _wrap(
    node: ast.BinOp, lhs: Range, right: Range, bounds: tuple[int, int], exact: bool
) -> Wrap | None:
    """Returns the overflow of a sum, difference or product. In 32 bits a final result within
    bounds is right, whatever overflowed before.
    """
    low, high = bounds
    wide = lhs.wide or right.wide
    if not wide and INT32[0] <= low <= high <= INT32[1]:
        return None
    for before, other in ((lhs, right), (right, lhs)):
        if before.wrap is not None:
            grows = isinstance(node.op, ast.Add) and before.wrap.reaches > 0 and other.low >= 0
            return replace(before.wrap, certain=before.wrap.certain and (exact or grows))
    if wide:
        return None
    reaches = high if high > INT32[1] else low
    clear = reaches > INT32[1] + CLEAR_EXCESS or reaches < INT32[0] - CLEAR_EXCESS
    return Wrap(node.lineno, ast.unparse(node), reaches, certain=exact and clear)


def _bounds(operation: ast.operator, lhs: Range, right: Range) -> list[int] | None:
    ends = [(a, b) for a in (lhs.low, lhs.high) for b in (right.low, right.high)]
    if isinstance(operation, ast.Add):
        return [a + b for a, b in ends]
    if isinstance(operation, ast.Sub):
        return [a - b for a, b in ends]
    if isinstance(operation, ast.Mult):
        return [a * b for a, b in ends]
    if lhs.low < 0 or right.low <= 0:
        return None
    if isinstance(operation, ast.FloorDiv):
        return [a // b for a, b in ends]
    if isinstance(operation, ast.Mod):
        if lhs.is_constant and right.is_constant:
            return [lhs.low % right.low]
        return [0, min(lhs.high, right.high - 1)]
    return None


def widened(value: Range) -> Range:
    """Returns the value after `.to(tl.int64)`; an earlier overflow stays."""
    return replace(value, wide=True)
