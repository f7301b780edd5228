"""Draws numbers of two magnitudes along every axis: a quarter is a million times as large as the rest.

A sum over a part of an axis may be computed as a difference of two sums. Where these are far larger than what is left
of them, it loses its digits. Among numbers of one magnitude that happens at few elements, at the end of a row.

Example: along a row of eight, `[1, 1, 1, 1, 1, 1, 1, 1]` becomes `[2**20, 2**20, 1, 1, 1, 1, 1, 1]`. The sums from each
place to the end are exact there, and "total minus prefix" is off by a hundredth of each of the last six.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.isolation import repeats_itself

if TYPE_CHECKING:
    import torch

LARGE_ROWS_PART = 4
"""One of so many parts of an axis is large: the first one, or the last."""
MIN_EXTENT = 8
"""An axis with fewer elements is left as it is."""


def grade(tensors: Sequence[torch.Tensor], exponent: int) -> None:
    """Multiplies numbers of each tensor by 2^exponent, in place: the first quarter along an axis, or the last one where
    the indices of the other axes add up to an odd number. A number that lies so along any axis is large.

    Tensors of float16 stay, which has no such numbers, and those whose rows say everything twice.
    """
    import torch

    for tensor in tensors:
        if tensor.itemsize == 1 or tensor.dtype == torch.float16 or repeats_itself(tensor):
            continue
        is_large = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        places = [_along(tensor, axis) for axis in range(tensor.dim())]
        parity = sum(places) if places else None
        for axis, place in enumerate(places):
            extent = tensor.shape[axis]
            if extent < MIN_EXTENT:
                continue
            first, last = (
                place < extent // LARGE_ROWS_PART,
                place >= extent - extent // LARGE_ROWS_PART,
            )
            is_large |= torch.where((parity - place) % 2 == 0, first, last)
        tensor.copy_(torch.where(is_large, tensor * 2.0**exponent, tensor))


def _along(tensor: torch.Tensor, axis: int) -> Any:
    """Returns the index along an axis, in a shape that spreads over the tensor."""
    import torch

    shape = [1] * tensor.dim()
    shape[axis] = -1
    return torch.arange(tensor.shape[axis], device=tensor.device).view(shape)
