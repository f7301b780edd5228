"""Embedding bags, whose C++ has no kernel here: rows are looked up, and each bag's are reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    import torch


def embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """torch.nn.functional's own, without a bound of the norm. input: [bags, length], or flat with offsets [bags]."""
    if max_norm is not None:
        raise DraftRefused(
            "embedding_bag with max_norm changes its weight", operator="embedding_bag"
        )
    rows = weight[input]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counted = input == input if padding_idx is None else input != padding_idx % weight.shape[0]
    if offsets is None:
        return _of_rectangle(rows, counted.unsqueeze(-1), mode)
    return _of_flat(rows, counted, offsets[:-1] if include_last_offset else offsets, mode)


def _of_rectangle(rows: torch.Tensor, counted: torch.Tensor, mode: str) -> Any:
    """rows [bags, length, width], counted [bags, length, 1] -> [bags, width]."""
    import torch

    zero = torch.zeros((), dtype=rows.dtype, device=rows.device)
    if mode == "max":
        return _without_infinities(torch.where(counted, rows, -math.inf).amax(1))
    total = torch.where(counted, rows, zero).sum(1)
    return total if mode == "sum" else total / counted.sum(1).clamp(min=1).to(rows.dtype)


def _of_flat(rows: torch.Tensor, counted: torch.Tensor, offsets: torch.Tensor, mode: str) -> Any:
    """Reduces rows [length, width], counted [length], to [bags, width]; a bag ends at the start
    of the next bag.
    """
    import torch

    bags, width = offsets.shape[0], rows.shape[-1]
    position = torch.arange(rows.shape[0], device=rows.device)
    bag = (offsets.unsqueeze(0) <= position.unsqueeze(-1)).to(torch.int64).sum(-1) - 1
    if mode == "max":
        inside = (
            bag.unsqueeze(0) == torch.arange(bags, device=rows.device).unsqueeze(-1)
        ) & counted
        return _without_infinities(
            torch.where(inside.unsqueeze(-1), rows.unsqueeze(0), -math.inf).amax(1)
        )
    zero = torch.zeros((), dtype=rows.dtype, device=rows.device)
    rows = torch.where(counted.unsqueeze(-1), rows, zero)
    total = torch.zeros(bags, width, dtype=rows.dtype, device=rows.device).index_add(0, bag, rows)
    if mode == "sum":
        return total
    ones = counted.to(rows.dtype)
    count = torch.zeros(bags, dtype=rows.dtype, device=rows.device).index_add(0, bag, ones)
    return total / count.clamp(min=1).unsqueeze(-1)


def _without_infinities(x: torch.Tensor) -> Any:
    """The largest of an empty bag is nought."""
    import torch

    return torch.where(x == -math.inf, torch.zeros((), dtype=x.dtype, device=x.device), x)
