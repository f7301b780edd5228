"""Draws in which integers reach both ends of their index range.

Of 500 classes the last occurs by chance in every five hundredth row. Here many elements are 0, and
many the last index: the largest in the input, or, on a CPU, the last of the dimension that it seems
to index. If that guess is wrong, the reference raises, and the problem's own draw is used.

Example: targets of 5 rows with logits of 5 x 67, [12, 60, 3, 44, 8], become [0, 66, 3, 44, 0].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ELEMENTS_IN_TURN = 4
"""Of so many elements the first becomes 0 and the second the last index."""
MOST_TIMES_LARGEST = 2
"""A dimension counts as indexed if larger than the largest element, by at most this factor."""


def reach_ends(inputs: Sequence[Any]) -> None:
    """Sets elements of whole-number tensors to the ends of their range, in place.

    inputs: all inputs of a call. Sorted numbers (offsets), permutations and negative numbers stay.
    """
    import torch

    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    extents = {extent for t in tensors if t.is_floating_point() for extent in t.shape}
    for tensor in tensors:
        if _holds_indices(tensor):
            flat = tensor.view(-1)
            flat[1::ELEMENTS_IN_TURN] = _last_index(tensor, extents)
            flat[::ELEMENTS_IN_TURN] = 0


def _holds_indices(tensor: torch.Tensor) -> bool:
    import torch

    whole = (
        tensor.dtype in (torch.int64, torch.int32) and tensor.is_contiguous() and tensor.numel() > 1
    )
    if not whole or int(tensor.min()) < 0:
        return False
    is_sorted = bool((tensor.view(-1).diff() >= 0).all())
    return not is_sorted and int(tensor.unique().numel()) < tensor.numel()


def _last_index(tensor: torch.Tensor, extents: set[int]) -> int:
    """Returns the last index of the dimension that a tensor seems to index.

    On a GPU, where an index out of range ends the process, returns the largest element.
    """
    largest = int(tensor.max())
    indexed = [e for e in extents if largest < e <= MOST_TIMES_LARGEST * (largest + 1)]
    return largest if tensor.is_cuda or not indexed else min(indexed) - 1
