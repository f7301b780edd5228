"""Sorting and the largest elements without a library: each element's rank is counted, and the rank says where it goes.

It takes the square of the length, which is right for experts, classes and short rows. What it does not do: rows over
`LONGEST` elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.policies.inductor.refusing import Refused

LONGEST = 8192
"""Elements of a row that are ranked."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """aten's operator -> the same in operators that Inductor has kernels for."""
    import torch

    aten = torch.ops.aten
    return {
        aten.topk.default: topk, aten.sort.default: sort, aten.sort.stable: sort_stable, aten.argsort.default: argsort,
        aten.kthvalue.default: kthvalue, aten.median.dim: median, aten.nanmedian.dim: nanmedian,
    }  # fmt: skip


def _ranks(x: Any, descending: bool) -> Any:
    """For the last dimension: how many elements come before each one.

    NaN counts as the largest, equal elements keep their order.
    """
    import torch

    length = x.shape[-1]
    hint = length.node.hint if isinstance(length, torch.SymInt) else length
    if hint is not None and hint > LONGEST:
        raise Refused(f"sort or topk of rows of {hint} elements: at most {LONGEST} are ranked")
    own, other = x.unsqueeze(-1), x.unsqueeze(-2)
    place = torch.arange(length, device=x.device)
    earlier = place.unsqueeze(0) < place.unsqueeze(1)
    own_nan, other_nan = own != own, other != other
    if descending:
        before = (other > own) | (other_nan & torch.logical_not(own_nan))
    else:
        before = (other < own) | (own_nan & torch.logical_not(other_nan))
    equal = (other == own) | (own_nan & other_nan)
    return (before | (equal & earlier)).to(torch.int64).sum(-1)


def _taken(x: Any, ranks: Any, count: Any) -> tuple[Any, Any]:
    """Values and indices of the elements of rank 0, 1, ... count - 1."""
    import torch

    slots = torch.arange(count, device=x.device)
    here = ranks.unsqueeze(-2) == slots.unsqueeze(-1)
    indices = torch.where(here, torch.arange(x.shape[-1], device=x.device), 0).sum(-1)
    values = torch.where(here, x.unsqueeze(-2), torch.zeros((), dtype=x.dtype, device=x.device)).sum(-1)
    return values.to(x.dtype), indices


def topk(x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:
    moved = x.movedim(dim, -1)
    values, indices = _taken(moved, _ranks(moved, largest), k)
    return values.movedim(-1, dim), indices.movedim(-1, dim)


def sort(x: Any, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    return topk(x, x.shape[dim], dim, descending)


def sort_stable(x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    return sort(x, dim, descending)


def argsort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return sort(x, dim, descending)[1]


def kthvalue(x: Any, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    values, indices = topk(x, k, dim, largest=False)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def median(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower one of two middle elements; NaN where there is one, as torch says."""
    import torch

    moved = x.movedim(dim, -1)
    ranks, length = _ranks(moved, False), moved.shape[-1]
    nans = (moved != moved).to(torch.int64).sum(-1, keepdim=True)
    wanted = torch.where(nans > 0, length - nans, (length - 1) // 2)
    return _one(moved, ranks == wanted, dim, keepdim)


def nanmedian(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    import torch

    moved = x.movedim(dim, -1)
    ranks, length = _ranks(moved, False), moved.shape[-1]
    nans = (moved != moved).to(torch.int64).sum(-1, keepdim=True)
    return _one(moved, ranks == torch.clamp(length - nans - 1, min=0) // 2, dim, keepdim)


def _one(moved: Any, here: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    import torch

    zero = torch.zeros((), dtype=moved.dtype, device=moved.device)
    values = torch.where(here, moved, zero).sum(-1, keepdim=True).to(moved.dtype)
    indices = torch.where(here, torch.arange(moved.shape[-1], device=moved.device), 0).sum(-1, keepdim=True)
    values, indices = values.movedim(-1, dim), indices.movedim(-1, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
