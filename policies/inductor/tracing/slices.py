"""Slices of axes with symbolic sizes: Python clips slices to the axis, and a symbolic graph must
do the same.

A slice is first assumed to lie inside its axis, as most do, and the assumption is recorded. If it
fails at another size
of the problem (`x[..., :4]` of an axis of 3), the problem is traced again with min(end, size) as
the ends of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass
class Slices:
    """Assumptions about the slices of a module."""

    bounded: bool = False
    """Whether ends are computed, rather than taken to lie inside."""
    inside: list[tuple[Any, Any]] = field(default_factory=list)
    """Ends counted from the front and the extents they are taken not to be over, as expressions
    of sympy.
    """

    def broken_at(self, values: Mapping[Any, int]) -> bool:
        """Returns whether a slice ends outside of its axis for these values of the symbols.

        Slices that the values do not decide are taken to lie inside.
        """
        for end, extent in self.inside:
            over = (end - extent).subs(values)
            below = end.subs(values)
            if (over.is_number and over > 0) or (below.is_number and below < 0):
                return True
        return False

    def longer_than(self, least: int, symbols: Set[Any]) -> bool:
        """Returns whether a slice of an axis with one of these sizes has a numeric end above
        `least`.
        """
        return any(
            end.is_number and end > least and extent in symbols for end, extent in self.inside
        )

    def simplify(self, simplified: Callable[[Any], Any]) -> None:
        """Rewrites the recorded assumptions with merged symbols replaced by one symbol."""
        self.inside = [(simplified(end), simplified(extent)) for end, extent in self.inside]


_current: list[Slices] = []


@contextmanager
def tracing_slices(slices: Slices) -> Iterator[None]:
    """Makes `slices` the current collector inside the `with` block."""
    _current.append(slices)
    try:
        yield
    finally:
        _current.pop()


def clip_to_axis(word: slice, extent: int | torch.SymInt) -> slice:
    """The slice with its ends counted from the front, no further than the axis goes."""
    import torch

    symbolic = any(isinstance(n, torch.SymInt) for n in (word.start, word.stop, extent))
    if not _current or not symbolic or (isinstance(word.step, int) and word.step < 1):
        return word
    start, stop = (None if end is None else _end(end, extent) for end in (word.start, word.stop))
    if _current[-1].bounded and stop is not None and start is not None:
        stop = torch.sym_max(start, stop)
    return slice(start, stop, word.step)


def _end(end: object, extent: int | torch.SymInt) -> Any:
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not isinstance(end, int | torch.SymInt) or (isinstance(end, int) and end >= 1 << 62):
        return end
    slices = _current[-1]
    # Negative ends count from the end of the axis.
    negative = end < 0 if isinstance(end, int) else statically_known_true(end < 0)
    from_front = end + extent if negative else end
    if not slices.bounded:
        slices.inside.append((_expression(from_front), _expression(extent)))
        return end
    low = from_front if statically_known_true(from_front >= 0) else torch.sym_max(from_front, 0)
    return low if statically_known_true(low <= extent) else torch.sym_min(low, extent)


def _expression(size: int | torch.SymInt) -> Any:
    import sympy

    return size.node.expr if hasattr(size, "node") else sympy.Integer(size)
