"""Kinds of outputs by their arithmetic, which determine the comparison.

x.max(-1).values                        EXACT     no operator rounds: every correct kernel has equal values
torch.softmax(x, -1)                    ROUNDED   correct kernels differ by roundings
torch.round(x / scale).to(torch.int8)   STEPPED   rounding `x / scale` may move the output by a whole step
"""

from __future__ import annotations

from enum import IntEnum


class ArithmeticKind(IntEnum):
    """How the elements of a tensor come about; a result has at least the largest kind of its operands."""

    EXACT = 0
    """Every operator gives one correct value."""
    ROUNDED = 1
    """At least one operator rounds."""
    STEPPED = 2
    """A comparison, a choice of an index, a rounding to integers or a cast follows a rounding operator."""
