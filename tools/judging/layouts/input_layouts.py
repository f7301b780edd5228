"""The memory layout of one input as a value, and the layouts that views of PyTorch have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

OFFSETS = (0, 16, 48)
"""Storage offsets in elements. Whole multiples of 16 keep the alignment that kernels with wide loads rely on."""
STEPS = (2, 3)
MAX_GAP = 3
"""Largest number of elements by which a tensor is longer, in each dimension, than the slice that is taken of it."""


class InputLayout(Value):
    """Where the elements of one input lie in memory."""

    strides: tuple[int, ...]
    """In elements, by dimension."""
    offset: int = 0
    """Elements of the storage before the first element."""
    expanded: int | None = None
    """The dimension with stride 0, along which all values are equal; None where there is none."""
    name: str
    """`transposed`, `channels last`: for messages."""

    @property
    def description(self) -> str:
        """Returns the name with the numbers: `transposed (strides (1, 64), offset 16)`."""
        offset = f", offset {self.offset}" if self.offset else ""
        return f"{self.name} (strides {self.strides}{offset})"

    def elements(self, shape: Sequence[int]) -> int:
        """Returns the elements of the storage from its begin to the last element of a tensor of this shape."""
        reach = sum((extent - 1) * stride for extent, stride in zip(shape, self.strides, strict=True))
        return self.offset + reach + 1


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tells whether a tensor with these strides lies in memory as torch makes it."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def reordered_layout(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Draws a layout with every element in a place of its own: transposed, channels last, or sliced with a step.

    None for a tensor with at most one element.
    """
    long = _long_dimensions(shape)
    if not long:
        return None
    draws: list[Callable[[], InputLayout]] = [lambda: _stepped(shape, long[-1], rng)]
    if len(long) > 1:
        draws.append(lambda: _permuted(shape, _swapped(len(shape), long[-2], long[-1]), "transposed", rng))
    if len(shape) > 3 and {1, 2} <= set(long):
        order = _swapped(len(shape), 1, 2)
        draws.append(lambda: _permuted(shape, order, "as view(...).transpose(1, 2) leaves it", rng))
    if len(shape) in (4, 5) and 1 in long and long[-1] > 1:
        order = (0, *range(2, len(shape)), 1)
        draws.append(lambda: _permuted(shape, order, "channels last", rng))
    return rng.choice(draws)()


def sliced_layout(shape: Sequence[int], rng: random.Random, *, may_expand: bool) -> InputLayout | None:
    """Draws a layout of a slice of a larger tensor, where no stride is the product of the extents after it.

    may_expand: whether one dimension may have stride 0. None for a tensor with at most one element.
    """
    long = _long_dimensions(shape)
    if not long:
        return None
    gaps = [extent + rng.randint(1, MAX_GAP) for extent in shape]
    expanded = rng.choice(long) if may_expand else None
    if expanded is not None:
        gaps[expanded] = 1
    strides = list(_strides(gaps, range(len(shape))))
    if expanded is not None:
        strides[expanded] = 0
    name = "a slice of a larger tensor" if expanded is None else f"expanded along dimension {expanded}"
    return InputLayout(strides=tuple(strides), offset=rng.choice(OFFSETS[1:]), expanded=expanded, name=name)


def copy_values(target: torch.Tensor, values: torch.Tensor) -> None:
    """Writes values into a tensor of any layout, also where elements of the tensor share memory along a dimension."""
    for dimension, stride in enumerate(target.stride()):
        if stride == 0:
            target, values = target.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    target.copy_(values)


def _long_dimensions(shape: Sequence[int]) -> list[int]:
    return [dimension for dimension, extent in enumerate(shape) if extent > 1] if 0 not in shape else []


def _stepped(shape: Sequence[int], dimension: int, rng: random.Random) -> InputLayout:
    step = rng.choice(STEPS)
    extents = [extent * step if d == dimension else extent for d, extent in enumerate(shape)]
    strides = list(_strides(extents, range(len(shape))))
    strides[dimension] *= step
    name = f"sliced with step {step} along dimension {dimension}"
    return InputLayout(strides=tuple(strides), offset=rng.choice(OFFSETS), name=name)


def _permuted(shape: Sequence[int], order: Sequence[int], name: str, rng: random.Random) -> InputLayout:
    return InputLayout(strides=_strides(shape, order), offset=rng.choice(OFFSETS), name=name)


def _swapped(count: int, first: int, second: int) -> tuple[int, ...]:
    order = list(range(count))
    order[first], order[second] = order[second], order[first]
    return tuple(order)


def _strides(extents: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a dense tensor whose dimensions lie in this order, from the slowest to the fastest."""
    strides = [0] * len(extents)
    step = 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= extents[dimension]
    return tuple(strides)
