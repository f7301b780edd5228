"""Draws whose rows alternate between several kinds of numbers, to show all of them in a call.

Most kernels work row by row: a row of zeros with six numbers tells there as much beside other rows as in a draw of its
own. A sum over all rows hides it, so the sizes of a problem take turns between this draw and pure ones.

Example: of seven rows the first and the sixth hold the numbers of the problem's draw, the second and the seventh
special numbers, the third zeros with six numbers, the fourth numbers many of which are nearly the largest, and the
fifth is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.references.redrawing.isolation import isolate, repeats_itself, scatter
from kernelwright.tools.references.redrawing.row_structures import structured

if TYPE_CHECKING:
    import torch

KINDS_OF_ROWS = 5
"""Rows of the problem's draw, of special numbers, with few numbers among zeros, with many near the largest, and with a
structure.
"""
NEAR_EXTREME_EVERY = 8
"""One element in so many is drawn near the row's largest or smallest."""
NEAR_EXTREME_EXPONENTS = 6
"""Distances from the largest or smallest are 4, 16, ... units in its last place: so many powers of four."""


def mix_rows(
    tensors: Sequence[torch.Tensor], special: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Alternates the rows of floating tensors between kinds of numbers, in place.

    The first row's kind depends on the first number, so that other seeds and sizes start with
    another kind. Tensors with repeated rows are unchanged. tensors: numbers of the problem's own
    draw, of any shapes. special: maps such numbers to special ones. Numbers are isolated only in
    the tensors with the most elements: few elements of tensors of different shapes seldom meet.
    """
    most = max((t.numel() for t in tensors), default=0)
    for tensor in tensors:
        if not tensor.dim() or tensor.itemsize == 1 or repeats_itself(tensor):
            continue
        isolated = tensor.contiguous().clone()
        if tensor.numel() == most:
            isolate(isolated, 0.0)
        turn = _turn_of_rows(tensor)
        mixture = special(tensor.contiguous()).where(turn == 1, tensor)
        mixture = isolated.where(turn == 2, mixture)
        mixture = structured(tensor.contiguous()).where(turn == 4, mixture)
        tensor.copy_(_near_extreme(tensor.contiguous()).where(turn == 3, mixture))


def _near_extreme(tensor: torch.Tensor) -> torch.Tensor:
    """Returns rows in which many elements are a few ulps below the largest or above the smallest,
    and none equal to it.

    A kernel that rounds before comparing selects another element. Zeros stay zeros.
    """
    import torch

    rows = tensor.numel() // tensor.shape[-1]
    scattered = scatter(torch.arange(tensor.numel(), device=tensor.device)).view(tensor.shape)
    units = 4.0 ** (scattered // NEAR_EXTREME_EVERY % NEAR_EXTREME_EXPONENTS + 1)
    is_upper = (
        torch.arange(rows, device=tensor.device).view(*tensor.shape[:-1], 1) // KINDS_OF_ROWS % 2
        == 0
    )
    extreme = torch.where(is_upper, tensor.amax(-1, keepdim=True), tensor.amin(-1, keepdim=True))
    distance = units.to(tensor.dtype) * torch.finfo(tensor.dtype).eps * extreme.abs()
    is_near = (scattered % NEAR_EXTREME_EVERY == 0) & (tensor != 0) & (tensor != extreme)
    near = torch.where(is_upper, extreme - distance, extreme + distance)
    return near.where(is_near & (distance < extreme.abs() / 2), tensor)


def _turn_of_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the kind of each row, a tensor of the shape of the rows with one column."""
    import torch

    rows = tensor.numel() // tensor.shape[-1]
    first = int(float(tensor.flatten()[0].abs().nan_to_num(posinf=0.0)) * 1e4)
    turn = (torch.arange(rows, device=tensor.device) + first) % KINDS_OF_ROWS
    return turn.view(*tensor.shape[:-1], 1)
