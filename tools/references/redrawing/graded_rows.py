"""Draws numbers of two magnitudes along every axis: a quarter is a million times as large as the rest.

A candidate may compute the sum over a part of an axis as a difference of two sums. If both are far larger than their
difference, it loses its digits. Among numbers of equal magnitude this shows at few elements, at the end of a row.

Example: along a row of eight, `[1, 1, 1, 1, 1, 1, 1, 1]` becomes `[2**20, 2**20, 1, 1, 1, 1, 1, 1]`. Sums from an index
to the end are exact, and "total minus prefix" is off by a hundredth of each of the last six.

Only inputs without a unit are drawn so: if doubling an input multiplies each output by a power of two. The logarithms
of a gate have a unit, and a kernel may take `exp(total - prefix)` of them, as chunked state-space models do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.isolation import repeats_itself

if TYPE_CHECKING:
    import torch

LARGE_ROWS_PART = 4
"""The first or the last 1 / LARGE_ROWS_PART of an axis is large."""
MIN_EXTENT = 8
"""An axis with fewer elements is left as it is."""


def inputs_without_unit(
    inputs: Sequence[Any], run: Callable[[list[Any]], list[Any]]
) -> tuple[int, ...]:
    """Returns the positions of the floating inputs in which the reference is homogeneous.

    run: returns the reference's outputs; it is given copies.
    """
    import torch

    def outputs(doubled: int | None) -> list[Any]:
        copies = list(inputs)
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                copies[position] = value * 2 if position == doubled else value.clone()
        return run(copies)

    floating = [
        position
        for position, value in enumerate(inputs)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1
    ]
    own = outputs(None) if floating else []
    return tuple(p for p in floating if all(map(_is_scaled, own, outputs(p))))


def _is_scaled(output: Any, other: Any) -> bool:
    """Returns whether an output is another one times a power of two, bit for bit; whole numbers and
    booleans must be equal."""
    import torch

    if not isinstance(output, torch.Tensor) or output.numel() == 0:
        return True
    if not output.is_floating_point():
        return torch.equal(output, other)
    before, after = output.nan_to_num(), other.nan_to_num()
    largest, largest_after = float(before.abs().max()), float(after.abs().max())
    if 0.0 in (largest, largest_after):
        return largest == largest_after
    factor = largest_after / largest
    return math.frexp(factor)[0] == 0.5 and torch.equal(before * factor, after)


def grade(tensors: Sequence[torch.Tensor], exponent: int) -> None:
    """Multiplies a part of each tensor by 2^exponent, in place.

    The part holds the elements in the first quarter along any axis. It is the last quarter if the indices of the other
    axes add up to an odd number. Unchanged are tensors of float16 and of 8-bit numbers, whose range is too small, and
    tensors whose rows repeat themselves.
    """
    import torch

    for tensor in tensors:
        if tensor.itemsize == 1 or tensor.dtype == torch.float16 or repeats_itself(tensor):
            continue
        is_large = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        indices = [_along(tensor, axis) for axis in range(tensor.dim())]
        parity: Any = sum(indices)
        for axis, index in enumerate(indices):
            extent = tensor.shape[axis]
            if extent < MIN_EXTENT:
                continue
            first, last = (
                index < extent // LARGE_ROWS_PART,
                index >= extent - extent // LARGE_ROWS_PART,
            )
            is_large |= torch.where((parity - index) % 2 == 0, first, last)
        tensor.copy_(torch.where(is_large, tensor * 2.0**exponent, tensor))


def _along(tensor: torch.Tensor, axis: int) -> Any:
    """Returns the index along an axis, in a shape that spreads over the tensor."""
    import torch

    shape = [1] * tensor.dim()
    shape[axis] = -1
    return torch.arange(tensor.shape[axis], device=tensor.device).view(shape)
