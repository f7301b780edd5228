"""Draws numbers of two magnitudes along every axis: a quarter is a million times as large as the rest.

A candidate may compute the sum over a part of an axis as a difference of two sums. If both are far larger than their
difference, it loses its digits. Among numbers of equal magnitude this shows at few elements, at the end of a row.

Example: along a row of eight, `[1, 1, 1, 1, 1, 1, 1, 1]` becomes `[2**20, 2**20, 1, 1, 1, 1, 1, 1]`. Sums from an index
to the end are exact, and "total minus prefix" is off by a hundredth of each of the last six.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.isolation import repeats_itself

if TYPE_CHECKING:
    import torch

LARGE_ROWS_PART = 4
"""The first or the last 1 / LARGE_ROWS_PART of an axis is large."""
MIN_EXTENT = 8
"""An axis with fewer elements is left as it is."""


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
