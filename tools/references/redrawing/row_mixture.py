"""Draws whose rows take turns between several kinds of numbers, so that one call of a kernel shows all of them.

Most kernels work row by row: a row of zeros with six numbers tells there as much beside other rows as in a draw of its
own. A sum over all rows hides it, so the sizes of a problem take turns between this draw and pure ones.

Example: of seven rows the first, the fourth and the seventh hold the numbers of the problem's draw, the second and the
fifth special numbers, and the third and the sixth zeros with six numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.references.redrawing.isolation import isolate, repeats_itself

if TYPE_CHECKING:
    import torch

KINDS_OF_ROWS = 3
"""Rows of the problem's draw, rows of special numbers, and rows in which few numbers decide."""


def mix_rows(tensors: Sequence[torch.Tensor], special: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Lets the rows of floating tensors take turns between kinds of numbers, in place. The first row's kind follows
    from the first number, so other seeds and sizes begin with another kind. Tensors whose rows repeat one another stay.

    tensors: numbers of the problem's own draw, of any shapes. special: maps such numbers to special ones. Numbers are
    isolated in the tensors with the most elements alone: few elements of tensors of different shapes seldom meet.
    """
    most = max((t.numel() for t in tensors), default=0)
    for tensor in tensors:
        if not tensor.dim() or tensor.itemsize == 1 or repeats_itself(tensor):
            continue
        isolated = tensor.contiguous().clone()
        if tensor.numel() == most:
            isolate(isolated, 0.0)
        turn = _turn_of_rows(tensor)
        mixed = special(tensor.contiguous()).where(turn == 1, tensor)
        tensor.copy_(isolated.where(turn == KINDS_OF_ROWS - 1, mixed))


def _turn_of_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the kind of each row, a tensor of the shape of the rows with one column."""
    import torch

    rows = tensor.numel() // tensor.shape[-1]
    first = int(float(tensor.flatten()[0].abs().nan_to_num(posinf=0.0)) * 1e4)
    turn = (torch.arange(rows, device=tensor.device) + first) % KINDS_OF_ROWS
    return turn.view(*tensor.shape[:-1], 1)
