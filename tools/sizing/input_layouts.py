"""The memory layout of an input as a value, and the layouts of views in PyTorch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

OFFSETS = (0, 16, 48)
"""Storage offsets in elements. Whole multiples of 16 keep the alignment that kernels with wide loads rely on."""
STEPS = (2, 3)
MAX_GAP = 3
"""Largest number of elements, in each dimension, between a slice and the end of its tensor."""


class InputLayout(Value):
    """The places of an input's elements in memory."""

    strides: tuple[int, ...]
    """In elements, by dimension."""
    offset: int = 0
    """Elements of the storage before the first element."""
    expanded: int | None = None
    """The dimension with stride 0, along which all values are equal; None if no stride is 0."""
    name: str
    """`transposed`, `channels last`: for messages."""

    @property
    def description(self) -> str:
        """Returns the name with the numbers: `transposed (strides (1, 64), offset 16)`."""
        offset = f", offset {self.offset}" if self.offset else ""
        return f"{self.name} (strides {self.strides}{offset})"

    def elements(self, shape: Sequence[int]) -> int:
        """Returns the elements of the storage from its begin to the last element of a tensor of this shape."""
        reach = sum(
            (extent - 1) * stride for extent, stride in zip(shape, self.strides, strict=True)
        )
        return self.offset + reach + 1


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tells whether a tensor with these strides is contiguous."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def transposed(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of `x.transpose(-1, -2)` of a contiguous tensor; None with fewer than two long dimensions."""
    long = long_dimensions(shape)
    if len(long) < 2:
        return None
    order = _swapped(len(shape), long[-2], long[-1])
    return InputLayout(
        strides=_strides(shape, order), offset=rng.choice(OFFSETS), name="transposed"
    )


def stepped(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of `x[..., ::2]`; None for a tensor with fewer than two elements."""
    long = long_dimensions(shape)
    if not long:
        return None
    dimension, step = long[-1], rng.choice(STEPS)
    extents = [extent * step if d == dimension else extent for d, extent in enumerate(shape)]
    strides = list(_strides(extents, range(len(shape))))
    strides[dimension] *= step
    name = f"sliced with step {step} along dimension {dimension}"
    return InputLayout(strides=tuple(strides), offset=rng.choice(OFFSETS), name=name)


def sliced(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of a slice of a larger tensor: no stride is the product of the extents after its dimension.

    None for a tensor with fewer than two elements.
    """
    if not long_dimensions(shape):
        return None
    extents = [extent + rng.randint(1, MAX_GAP) for extent in shape]
    strides = _strides(extents, range(len(shape)))
    return InputLayout(
        strides=strides, offset=rng.choice(OFFSETS[1:]), name="a slice of a larger tensor"
    )


def expanded(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of `x.expand(...)` along one dimension; None for a tensor with fewer than two elements."""
    long = long_dimensions(shape)
    if not long:
        return None
    dimension = rng.choice(long)
    extents = [
        1 if d == dimension else extent + rng.randint(0, MAX_GAP) for d, extent in enumerate(shape)
    ]
    strides = list(_strides(extents, range(len(shape))))
    strides[dimension] = 0
    name = f"expanded along dimension {dimension}"
    return InputLayout(
        strides=tuple(strides), offset=rng.choice(OFFSETS), expanded=dimension, name=name
    )


def heads_transposed(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of `x.view(batch, length, heads, dim).transpose(1, 2)`; None below four dimensions."""
    if len(shape) < 4 or not {1, 2} <= set(long_dimensions(shape)):
        return None
    strides = _strides(shape, _swapped(len(shape), 1, 2))
    return InputLayout(
        strides=strides, offset=rng.choice(OFFSETS), name="as view(...).transpose(1, 2) leaves it"
    )


def channels_last(shape: Sequence[int], rng: random.Random) -> InputLayout | None:
    """Returns the layout of `torch.channels_last`, or of `channels_last_3d`; None for other dimensions than 4 and 5."""
    if len(shape) not in (4, 5) or len(long_dimensions(shape)) < 2:
        return None
    strides = _strides(shape, (0, *range(2, len(shape)), 1))
    return InputLayout(strides=strides, offset=rng.choice(OFFSETS), name="channels last")


def copy_values(target: torch.Tensor, values: torch.Tensor) -> None:
    """Writes values into a tensor of any layout, expanded tensors included."""
    for dimension, stride in enumerate(target.stride()):
        if stride == 0:
            target, values = target.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    target.copy_(values)


def long_dimensions(shape: Sequence[int]) -> list[int]:
    """Returns the dimensions with more than one element; none for an empty tensor."""
    return (
        [dimension for dimension, extent in enumerate(shape) if extent > 1]
        if 0 not in shape
        else []
    )


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
