"""Quantiles by a sort, for symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def quantile(
    input: torch.Tensor,
    q: float | torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """Writes `torch.quantile` as a sort and a mean of two neighbours; a row with NaN gives NaN."""
    import torch

    quantiles = (
        q
        if isinstance(q, torch.Tensor)
        else torch.full((), q, dtype=input.dtype, device=input.device)
    )
    rows = input.flatten() if dim is None else input.movedim(dim, -1)
    ordered = torch.sort(rows, -1)[0]
    last = rows.shape[-1] - 1
    unordered = (rows != rows).any(-1, keepdim=True)
    ranks = torch.where(unordered, last, quantiles.reshape(-1) * last)
    values = _between(ordered, ranks, interpolation)
    if keepdim:
        axes = range(input.dim()) if dim is None else [dim % input.dim()]
        for axis in axes:
            values = values.unsqueeze(axis)
    return values.movedim(-1, 0) if quantiles.dim() else values.squeeze(-1)


def _between(ordered: torch.Tensor, ranks: torch.Tensor, interpolation: str) -> Any:
    """The elements of ordered rows at these ranks, which may lie between two places."""
    import torch

    rounded: dict[str, Callable[[Any], Any]] = {
        "lower": torch.floor,
        "higher": torch.ceil,
        "nearest": torch.round,
    }
    if interpolation in rounded:
        return ordered.gather(-1, rounded[interpolation](ranks).to(torch.int64))
    below, above = torch.floor(ranks), torch.ceil(ranks)
    weight = torch.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
    lower, higher = (ordered.gather(-1, rank.to(torch.int64)) for rank in (below, above))
    return torch.lerp(lower, higher, weight)
