"""Places in sorted rows without a search: so many elements of the row lie before a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def searching_decompositions() -> dict[Any, Callable[..., Any]]:
    """aten's operator -> the same as a count."""
    import torch

    aten = torch.ops.aten
    return {
        aten.searchsorted.Tensor: searchsorted, aten.searchsorted.Scalar: searchsorted,
        aten.bucketize.Tensor: bucketize, aten.bucketize.Scalar: bucketize,
    }  # fmt: skip


def searchsorted(
    sorted_sequence: Any, self: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    """Writes `torch.searchsorted` as a comparison of every value with every element of its row; NaN comes last."""
    import torch

    rows = sorted_sequence if sorter is None else torch.gather(sorted_sequence, -1, sorter)
    if not isinstance(self, torch.Tensor):
        self = torch.full((), self, dtype=rows.dtype, device=rows.device)
    alone = self.dim() == 0
    values = self.unsqueeze(-1)
    elements = rows if rows.dim() == 1 else rows.unsqueeze(-2)
    after = elements > values if right or side == "right" else elements >= values
    count = torch.logical_not(after).to(torch.int32).sum(-1)
    made = count.to(torch.int32 if out_int32 else torch.int64)
    return made.reshape(()) if alone else made


def bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """Writes `torch.bucketize`: `searchsorted` with its first two arguments in the other order."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)
