"""Tensors of gigabytes gone through a part at a time, so that beside them little more is needed than they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PIECE_ELEMENTS = 1 << 26
"""Elements of each tensor in one part."""


def pieces(*tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Tensors of one shape, cut alike along their first axes into views of at most PIECE_ELEMENTS each. They may lie in
    memory in any way.
    """
    first = tensors[0]
    if first.numel() <= PIECE_ELEMENTS or not first.dim():
        yield tensors
        return
    rows = PIECE_ELEMENTS * len(first) // first.numel()
    if not rows:
        for row in range(len(first)):
            yield from pieces(*(t[row] for t in tensors))
        return
    yield from zip(*(t.split(rows) for t in tensors), strict=True)


def sample_elements(tensor: Any, most: int) -> Any:
    """Returns at most so many elements of a tensor, evenly spaced in their order, the last one among them. Of a tensor
    that is not contiguous these alone are copied.
    """
    import torch

    count = tensor.numel()
    step = max(1, -(-count // most))
    first = (count - 1) % step
    if tensor.is_contiguous() or step == 1:
        return tensor.reshape(-1)[first::step]
    places = torch.arange(first, count, step, device=tensor.device)
    return tensor[torch.unravel_index(places, tensor.shape)]


def distance(one: Any, other: Any) -> Any:
    """|one - other| of two real or complex tensors, 0 where that is not finite."""
    gap = one - other
    return (gap.abs() if gap.is_complex() else gap.abs_()).nan_to_num_(nan=0.0, posinf=0.0)


def raise_to_distance(most: Any, one: Any, other: Any) -> None:
    """Raises each element of `most` to no less than the distance of the other two, in place and in parts."""
    import torch

    for found, here, there in pieces(most, one, other):
        torch.maximum(found, distance(here, there).to(found.dtype), out=found)
