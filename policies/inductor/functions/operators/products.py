"""Products of integers, by group, over several axes, and of all pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    import torch


def int_mm(left: torch.Tensor, right: torch.Tensor) -> Any:
    """Writes `torch._int_mm` as a sum of products in int32."""
    import torch

    wide = left.to(torch.int32).unsqueeze(-1) * right.to(torch.int32).unsqueeze(0)
    return wide.sum(1, dtype=torch.int32)


def grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Writes `torch._grouped_mm` as a single (batched) product whose operand is zero outside of a
    group.

    offs: end of each group, along the rows of a two-dimensional `left`, the columns of a
    two-dimensional `right`, or the
    inner dimension if both are two-dimensional.
    """
    ends = cast("torch.Tensor", offs)
    if left.dim() == 3 and right.dim() == 3:
        product = left @ right
    elif left.dim() == 2 and right.dim() == 3:
        product = _rows_by_group(left, right, ends)
    elif left.dim() == 3 and right.dim() == 2:
        product = _rows_by_group(right.mT, left.mT, ends).mT
    else:
        # Both operands are two-dimensional: groups lie along the inner dimension.
        product = (_in_groups(left.mT, ends).mT) @ right.expand(ends.shape[0], *right.shape)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def _in_groups(rows: torch.Tensor, ends: torch.Tensor) -> Any:
    """Returns [group, row, column]: the rows of a group, and zeros in the place of the others."""
    import torch

    row = torch.arange(rows.shape[0], device=rows.device)
    group = (row[:, None] >= ends[None, :]).to(torch.int64).sum(1)
    member = torch.arange(ends.shape[0], device=rows.device)[:, None] == group[None, :]
    return torch.where(
        member[:, :, None], rows[None], torch.zeros((), dtype=rows.dtype, device=rows.device)
    )


def _rows_by_group(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> Any:
    """Multiplies each row by the matrix of its group: the groups lie side by side along the inner dimension."""
    groups, inner, outer = matrices.shape
    spread_rows = _in_groups(rows, ends).permute(1, 0, 2).reshape(rows.shape[0], groups * inner)
    return spread_rows @ matrices.reshape(groups * inner, outer)


def kron(input: torch.Tensor, other: torch.Tensor) -> Any:
    """Writes `torch.kron` as products of all pairs, with the axes of both side by side."""
    axes = max(input.dim(), other.dim())
    left = input.reshape(*[1] * (axes - input.dim()), *input.shape)
    right = other.reshape(*[1] * (axes - other.dim()), *other.shape)
    pairs = [(a, b) for a, b in zip(left.shape, right.shape, strict=True)]
    outer = left.reshape([n for a, _ in pairs for n in (a, 1)]) * right.reshape(
        [n for _, b in pairs for n in (1, b)]
    )
    return outer.reshape([a * b for a, b in pairs])


def tensordot(
    a: torch.Tensor,
    b: torch.Tensor,
    dims: int | Sequence[Sequence[int]] = 2,
    out: torch.Tensor | None = None,
) -> Any:
    """Writes `torch.tensordot` as a product of two matrices. Raises DraftRefused for `out`."""
    if out is not None:
        raise DraftRefused("tensordot with out= has no kernel: assign its result")
    summed: Any = (list(range(-dims, 0)), list(range(dims))) if isinstance(dims, int) else dims
    left, right = (
        [n % x.dim() for n in ([d] if isinstance(d, int) else d)]
        for x, d in zip((a, b), summed, strict=True)
    )
    rows = [n for n in range(a.dim()) if n not in left]
    columns = [n for n in range(b.dim()) if n not in right]
    inner = math.prod(a.shape[n] for n in left)
    matrix = a.permute(rows + left).reshape(-1, inner) @ b.permute(right + columns).reshape(
        inner, -1
    )
    return matrix.reshape([a.shape[n] for n in rows] + [b.shape[n] for n in columns])
