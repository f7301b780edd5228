"""Binary search in sorted rows: rewrites the forms without an Inductor kernel as the form with a
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def searching_decompositions() -> dict[Any, Callable[..., Any]]:
    """aten's operator -> the same with tensors for numbers, and without a sorter."""
    import torch

    aten = torch.ops.aten
    return {
        aten.searchsorted.Tensor: searchsorted, aten.searchsorted.Scalar: searchsorted_of_number,
        aten.bucketize.Scalar: bucketize_of_number,
    }  # fmt: skip


def searchsorted(
    sorted_sequence: torch.Tensor, self: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> Any:  # fmt: skip
    """Writes `torch.searchsorted` with a sorter as a search in the rows the sorter orders."""
    import torch

    if sorter is None:
        return NotImplemented
    rows = torch.gather(sorted_sequence, -1, sorter)
    return torch.searchsorted(rows, self, out_int32=out_int32, right=right, side=side)


def searchsorted_of_number(sorted_sequence: torch.Tensor, self: Any, **options: Any) -> Any:
    """Writes `torch.searchsorted` of a number as a search of a tensor."""
    import torch

    value = torch.full((1,), self, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    return torch.searchsorted(sorted_sequence, value, **options).reshape(())


def bucketize_of_number(self: Any, boundaries: torch.Tensor, **options: Any) -> Any:
    """Writes `torch.bucketize` of a number as a search of a tensor."""
    return searchsorted_of_number(boundaries, self, **options)
