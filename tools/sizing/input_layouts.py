"""The memory layout of an input as a value, and a generator of the layouts that views in PyTorch have.

A layout is drawn from the fastest dimension to the slowest: an order of the dimensions, a step along each, gaps between
their slices, and a dimension that repeats memory. `x.t()[:, ::3]` of shape (5, 67) has the order (1, 0) and the steps
(1, 3).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

ALIGNED_OFFSETS = (0, 16, 48)
"""Storage offsets in elements that keep the alignment which wide loads rely on."""
ODD_OFFSETS = range(1, 8191, 2)
SHORT_STEPS, LONG_STEPS = range(2, 4), range(4, 10)
MAX_GAP = 3
"""Largest number of elements, in each dimension, between a slice and the end of its tensor."""


class Trait(StrEnum):
    """How a layout differs from a contiguous one."""

    AWAY = "begins at an odd element of its storage"
    PERMUTED = "dimensions lie in another order"
    STEPPED = "the fastest dimension has a step of two or three, and others may have"
    FAR_APART = "the fastest dimension has a step of four to nine"
    GAPPED = "a slice of a larger tensor"
    EXPANDED = "one dimension has the stride 0"
    OVERLAPPING = "windows of one dimension share elements"


class InputLayout(Value):
    """The places of an input's elements in memory."""

    strides: tuple[int, ...]
    """In elements, by dimension."""
    offset: int = 0
    """Elements of the storage before the first element."""
    repeats: bool = False
    """Whether some elements share memory, so that they are equal."""
    follows_strides: bool = False
    """Whether a kernel that is right here goes by every stride: none is that of a contiguous tensor."""
    is_dense: bool = False
    """Whether the strides are those of a contiguous tensor, so that nothing but the offset is unusual."""
    name: str
    """`transposed`, `expanded along dimension 1`: for messages."""

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


def draw_layout(
    shape: Sequence[int], traits: Collection[Trait], rng: random.Random
) -> InputLayout | None:
    """Returns a layout with these traits; None for a shape that cannot have all of them."""
    long = long_dimensions(shape)
    repeating = bool({Trait.EXPANDED, Trait.OVERLAPPING} & set(traits))
    least = 2 if {Trait.PERMUTED, Trait.OVERLAPPING} & set(traits) else 1
    if len(long) < least:
        return None
    order = _permuted(shape, rng) if Trait.PERMUTED in traits else list(range(len(shape)))
    fastest = next(d for d in reversed(order) if d in long)
    slow = [d for d in long if d != fastest]
    repeated = rng.choice(slow if Trait.OVERLAPPING in traits else long) if repeating else None
    strides = [0] * len(shape)
    reach = 1
    for dimension in reversed(order):
        extent = shape[dimension]
        step = _step(traits, dimension == fastest, rng) if dimension in long else 1
        if dimension == repeated:
            strides[dimension] = 0 if Trait.EXPANDED in traits else rng.randint(1, reach - 1)
            reach += strides[dimension] * (extent - 1)
            continue
        strides[dimension] = reach * step
        gap = rng.randint(1, MAX_GAP) if Trait.GAPPED in traits else 0
        reach = strides[dimension] * (extent + gap)
    offset = rng.choice(ODD_OFFSETS if Trait.AWAY in traits else ALIGNED_OFFSETS)
    return _layout(shape, strides, offset, repeated, traits)


def _step(traits: Collection[Trait], is_fastest: bool, rng: random.Random) -> int:
    """Returns a step: long ones along the fastest dimension alone, for memory grows by the product of all."""
    if is_fastest and Trait.FAR_APART in traits:
        return rng.choice(LONG_STEPS)
    if Trait.STEPPED in traits:
        return rng.choice(SHORT_STEPS if is_fastest else (1, *SHORT_STEPS))
    return 1


def _layout(
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    repeated: int | None,
    traits: Collection[Trait],
) -> InputLayout:
    usual = _contiguous(shape)
    return InputLayout(
        strides=tuple(strides),
        offset=offset,
        repeats=repeated is not None,
        follows_strides=all(strides[d] != usual[d] for d in long_dimensions(shape)),
        is_dense=is_contiguous(shape, strides),
        name=_name(shape, strides, repeated, traits),
    )


def _name(
    shape: Sequence[int], strides: Sequence[int], repeated: int | None, traits: Collection[Trait]
) -> str:
    parts = []
    if Trait.PERMUTED in traits:
        long = long_dimensions(shape)
        is_matrix = len(long) == 2 and repeated is None
        parts.append("transposed" if is_matrix else "permuted")
    if {Trait.STEPPED, Trait.FAR_APART} & set(traits):
        parts.append("sliced with steps")
    if Trait.GAPPED in traits:
        parts.append("a slice of a larger tensor")
    if repeated is not None:
        kind = "expanded" if strides[repeated] == 0 else "made of overlapping windows"
        parts.append(f"{kind} along dimension {repeated}")
    if Trait.AWAY in traits:
        parts.append("a view that begins at an odd element")
    return ", ".join(parts)


def _permuted(shape: Sequence[int], rng: random.Random) -> list[int]:
    """Returns an order of the dimensions in which those with more than one element lie otherwise: of four dimensions
    often as after `view(...).transpose(1, 2)` or in channels-last.
    """
    usual = list(range(len(shape)))
    long = long_dimensions(shape)
    common = [[*usual[:-2], *usual[:-3:-1]]]
    if len(shape) >= 4:
        common += [[0, 2, 1, *usual[3:]], [0, *usual[2:], 1]]
    orders = [order for order in common if [d for d in order if d in long] != long]
    if orders and rng.random() < 0.75:
        return rng.choice(orders)
    order = usual
    while [d for d in order if d in long] == long:
        order = rng.sample(usual, len(usual))
    return order


def held_values(values: torch.Tensor, layout: InputLayout) -> torch.Tensor:
    """Returns values of the same kind that a layout can hold: equal for elements that share memory."""
    if not layout.repeats:
        return values
    needed = layout.elements(values.shape) - layout.offset
    flat = values.reshape(-1)
    storage = flat.repeat(-(-needed // len(flat)))[:needed]
    return storage.as_strided(values.shape, layout.strides).clone().contiguous()


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tells whether a tensor with these strides is contiguous."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def copy_values(target: torch.Tensor, values: torch.Tensor) -> None:
    """Writes values into a tensor of any layout, expanded tensors included."""
    for dimension, stride in enumerate(target.stride()):
        if stride == 0:
            target = target.narrow(dimension, 0, 1)
            values = values.narrow(dimension, 0, 1)
    target.copy_(values)


def long_dimensions(shape: Sequence[int]) -> list[int]:
    """Returns the dimensions with more than one element; none for an empty tensor."""
    return (
        [dimension for dimension, extent in enumerate(shape) if extent > 1]
        if 0 not in shape
        else []
    )


def _contiguous(shape: Sequence[int]) -> list[int]:
    """Returns the strides of a contiguous tensor of this shape."""
    strides = [0] * len(shape)
    step = 1
    for dimension in reversed(range(len(shape))):
        strides[dimension] = step
        step *= shape[dimension]
    return strides
