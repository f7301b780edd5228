"""Reductions over segments of rows, scattering under a mask, and distances of pairs of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    import torch

NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""Kind of reduction -> neutral element."""


def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Writes `torch.segment_reduce` over the first axis as a reduction over all rows, with a mask for each segment.

    Raises DraftRefused for batches of lengths, and for indices.
    """
    import torch

    bounds = lengths if offsets is None else offsets
    if bounds is None or bounds.dim() != 1 or axis != 0:
        raise DraftRefused("segment_reduce over an axis other than the first has no kernel")
    if offsets is None:
        ends = torch.cumsum(bounds, 0)
        starts = ends - bounds
    else:
        ends, starts = offsets[1:], offsets[:-1]
    row = torch.arange(data.shape[0], device=data.device)
    # [segment, row]: whether a row belongs to a segment.
    member = (row >= starts[:, None]) & (row < ends[:, None])
    neutral: Any = NEUTRAL[reduce] if initial is None else initial
    wide = (ends.shape[0], data.shape[0], *[1] * (data.dim() - 1))
    rows = torch.where(member.view(wide), data.unsqueeze(0), NEUTRAL[reduce]).to(data.dtype)
    if reduce in ("max", "min"):
        extreme, join = (
            (rows.amax(1), torch.maximum) if reduce == "max" else (rows.amin(1), torch.minimum)
        )
        return join(extreme, torch.full((), neutral, dtype=data.dtype, device=data.device))
    if reduce == "prod":
        return rows.prod(1) * neutral
    total = rows.sum(1) + neutral
    count = (ends - starts).view(-1, *[1] * (data.dim() - 1))
    if reduce == "sum":
        return total
    empty = math.nan if initial is None else float(initial)
    return torch.where(count > 0, total / count, empty).to(data.dtype)


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """Writes `torch.masked_scatter`: a true element takes the value at the number of true
    elements before.
    """
    import torch

    shape = torch.broadcast_shapes(x.shape, mask.shape)
    wide, chosen = x.expand(shape), mask.expand(shape)
    position = torch.cumsum(chosen.reshape(-1).to(torch.int64), 0) - 1
    values = source.reshape(-1)[position.clamp(min=0)].reshape(shape)
    return torch.where(chosen, values, wide)


def pdist_forward(x: torch.Tensor, p: float = 2.0) -> Any:
    """Writes `torch.nn.functional.pdist` as norms of differences, for each pair of rows of the upper triangle."""
    import torch

    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)
