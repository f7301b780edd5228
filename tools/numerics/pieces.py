"""Processes large tensors in pieces, so that little extra memory is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


PIECE_ELEMENTS = 1 << 26
"""Maximum number of elements of a tensor in a piece."""


def pieces(*tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Yields corresponding views of tensors of equal shape, of at most PIECE_ELEMENTS each, along
    their first axes.

    The tensors may have any strides. Example: shape (3, 2**26) yields three views of shape
    (2**26,).
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
    """Returns at most `most` elements of a tensor, evenly spaced in order, including the last.

    Copies only these elements of a non-contiguous tensor.
    """
    import torch

    count = tensor.numel()
    step = max(1, -(-count // most))
    first = (count - 1) % step
    if tensor.is_contiguous() or step == 1:
        return tensor.reshape(-1)[first::step]
    positions = torch.arange(first, count, step, device=tensor.device)
    return tensor[torch.unravel_index(positions, tensor.shape)]


def distance(first: Any, second: Any) -> Any:
    """Returns |first - second| of two real or complex tensors, 0 for a non-finite difference."""
    gap = first - second
    return (gap.abs() if gap.is_complex() else gap.abs_()).nan_to_num_(nan=0.0, posinf=0.0)


def raise_to_distance(most: torch.Tensor, first: Any, second: Any) -> None:
    """Raises each element of `most` to at least the distance of the other two, in place and in
    pieces."""
    import torch

    for target, first_piece, second_piece in pieces(most, first, second):
        torch.maximum(target, distance(first_piece, second_piece).to(target.dtype), out=target)
