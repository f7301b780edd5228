"""Sorting and the largest elements without a library.

Few of the largest are taken one by one; whole rows are sorted bit by bit (radix sort); for a
median the rank of each
element is counted, in quadratic time. Not supported: medians of rows of more than
`MAX_RANKED_ELEMENTS` elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.functions.convolution_gradients import convolution_backward
from kernelwright.policies.inductor.functions.operators import library_operators
from kernelwright.policies.inductor.functions.quantiles import quantile
from kernelwright.policies.inductor.functions.searching import searching_decompositions
from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.loops import over_steps

if TYPE_CHECKING:
    import torch

MAX_RANKED_ELEMENTS = 8192
"""Largest number of elements in a ranked row."""
MAX_TAKEN_ONE_BY_ONE = 8
"""Largest k for which the k largest elements are taken one by one."""


def decompositions(partial: bool) -> dict[Any, Callable[..., Any]]:
    """Returns aten operators with their decompositions into operators that Inductor has kernels
    for.

    partial: an operator whose decomposition is refused stays in the graph.
    """
    import torch

    table = _operators() | searching_decompositions() | library_operators()
    if not partial:
        table[torch.ops.aten.convolution_backward.default] = convolution_backward
    return (
        {operator: _or_not_implemented(function) for operator, function in table.items()}
        if partial
        else table
    )


def _or_not_implemented(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def attempt(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except DraftRefused:
            return NotImplemented

    return attempt


def _operators() -> dict[Any, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    return {
        aten.scatter_reduce.two: scatter_reduce, aten.topk.default: topk, aten.sort.default: sort,
        aten.sort.stable: sort_stable, aten.argsort.default: argsort, aten.kthvalue.default: kthvalue,
        aten.median.dim: median, aten.nanmedian.dim: nanmedian, aten.index_reduce.default: index_reduce,
    }  # fmt: skip


def _ranks(x: torch.Tensor) -> Any:
    """Counts, along the last dimension, the elements that precede each element in order.

    NaN counts as the largest; equal elements keep their order.
    """
    import torch

    length = x.shape[-1]
    hint = length.node.hint if isinstance(length, torch.SymInt) else length
    if hint is not None and hint > MAX_RANKED_ELEMENTS:
        raise DraftRefused(
            f"the median of rows of {hint} elements: at most {MAX_RANKED_ELEMENTS} are ranked",
            operator="median",
        )
    # Compare each element with each other one: [..., element, other].
    element, other = x.unsqueeze(-1), x.unsqueeze(-2)
    position = torch.arange(length, device=x.device)
    earlier = position.unsqueeze(0) < position.unsqueeze(1)
    own_nan, other_nan = element != element, other != other
    before = (other < element) | (own_nan & torch.logical_not(other_nan))
    equal = (other == element) | (own_nan & other_nan)
    return (before | (equal & earlier)).to(torch.int64).sum(-1)


def topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    """Writes `torch.topk` as repeated maxima for a few elements, and as a sort for many."""
    import torch

    if x.dim() == 0:
        return x.clone(), x.new_zeros((), dtype=torch.int64)
    moved = x.movedim(dim, -1)
    if isinstance(k, int) and 0 < k <= MAX_TAKEN_ONE_BY_ONE:
        values, indices = _one_after_the_other(moved, k, largest)
    else:
        values, indices = _by_digits(moved, largest)
        values, indices = values.narrow(-1, 0, k), indices.narrow(-1, 0, k)
    return values.movedim(-1, dim), indices.movedim(-1, dim)


def _by_digits(x: torch.Tensor, descending: bool) -> tuple[Any, Any]:
    """Sorts the last dimension stably by a radix sort with a loop over bits; returns values and
    indices.
    """
    import torch

    key = _sortable_integers(x)
    key = torch.bitwise_not(key) if descending else key
    positions = (
        torch.arange(x.shape[-1], device=x.device, dtype=torch.int32).expand(x.shape).contiguous()
    )

    def one_bit(at: int, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        key, position = state["key"], state["place"]
        # Stable partition by one bit: zeros first, each group in its present order.
        zero = (torch.bitwise_right_shift(key, at) & 1) == 0
        before = torch.cumsum(zero.to(torch.int32), -1, dtype=torch.int32)
        zeros = zero.to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
        slot = torch.arange(x.shape[-1], device=x.device, dtype=torch.int32)
        rank = torch.where(zero, before - 1, zeros + slot - before).to(torch.int64)
        moved = {"key": torch.empty_like(key).scatter(-1, rank, key),
                 "place": torch.empty_like(position).scatter(-1, rank, position)}  # fmt: skip
        return moved, {}

    bits = torch.iinfo(key.dtype).bits
    after, _ = over_steps(one_bit, bits, {"key": key.contiguous(), "place": positions}, keep=True)
    indices = after["place"].to(torch.int64)
    return torch.gather(x, -1, indices), indices


def _sortable_integers(x: torch.Tensor) -> Any:
    """Integers whose bits, read as an unsigned number, are in the order of the elements; NaN is the largest."""
    import torch

    if not x.dtype.is_floating_point:
        wide = x.to(torch.int64 if x.dtype == torch.int64 else torch.int32)
        return wide ^ torch.iinfo(wide.dtype).min
    wide, whole = (x, torch.int64) if x.dtype == torch.float64 else (x.float(), torch.int32)
    wide = torch.where(wide != wide, math.nan, wide + 0.0)  # one NaN, and one zero
    bits = wide.view(whole)
    # Negative floats order in reverse: invert all their bits; for positive ones flip the sign
    # bit.
    return torch.where(bits < 0, torch.bitwise_not(bits), bits ^ torch.iinfo(whole).min)


def _one_after_the_other(x: torch.Tensor, k: int, largest: bool) -> tuple[Any, Any]:
    """Takes the k largest elements of the last dimension one by one; NaN counts as the largest.

    Among equal elements the first is taken first.
    """
    import torch

    length = x.shape[-1]
    positions = torch.arange(length, device=x.device)
    floating = x.dtype.is_floating_point
    worst: Any = (
        (-math.inf if largest else math.inf)
        if floating
        else _extreme_integer(x.dtype, lowest=largest)
    )
    nan = x != x
    is_taken = torch.zeros_like(x, dtype=torch.bool)
    values, indices = [], []
    for _ in range(k):
        remaining = torch.logical_not(is_taken)
        candidates = torch.where(is_taken | nan, worst, x)
        # The first position of the best remaining element.
        best = candidates.amax(-1, keepdim=True) if largest else candidates.amin(-1, keepdim=True)
        is_best = remaining & torch.logical_not(nan) & (x == best)
        if floating:
            number = is_best.to(torch.int32).sum(-1, keepdim=True) > 0
            nans = remaining & nan
            some = nans.to(torch.int32).sum(-1, keepdim=True) > 0
            is_best = torch.where(some if largest else torch.logical_not(number), nans, is_best)
        index = torch.where(is_best, positions, length).amin(-1, keepdim=True)
        chosen = positions == index
        values.append(
            torch.where(chosen, x, torch.zeros((), dtype=x.dtype, device=x.device))
            .sum(-1)
            .to(x.dtype)
        )
        indices.append(index.squeeze(-1))
        is_taken = is_taken | chosen
    return torch.stack(values, -1), torch.stack(indices, -1)


def _extreme_integer(dtype: torch.dtype, lowest: bool) -> int:
    import torch

    return int(torch.iinfo(dtype).min if lowest else torch.iinfo(dtype).max)


def ordering_functions() -> dict[str, Any]:
    """Name in torch and of tensors' methods -> the function, with the form torch's answer has."""
    import torch

    def sorted_(
        input: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
    ) -> Any:
        return torch.return_types.sort(sort(input, dim, descending))

    def topk_(
        input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> Any:
        return torch.return_types.topk(topk(input, k, dim, largest))

    def argsort_(
        input: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False
    ) -> Any:
        return sort(input, dim, descending)[1]

    return {"sort": sorted_, "topk": topk_, "argsort": argsort_, "quantile": quantile}


def scatter_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Writes maxima, minima and products of scattered values: each target looks at all values.

    Sums are left to Inductor, which has atomic additions for them; a mean is a quotient of two
    sums.
    """
    import torch

    if reduce == "mean" and x.dim() and x.dtype.is_floating_point:
        return _scattered_mean(x, dim, index, src, include_self)
    if reduce not in ("amax", "amin", "prod") or x.dim() == 0:
        return NotImplemented
    dim = dim % x.dim()
    moved, index, src = (
        v.movedim(dim, -1) for v in (x, index, src.narrow(dim, 0, index.shape[dim]))
    )
    is_target = index.unsqueeze(-2) == torch.arange(moved.shape[-1], device=x.device).unsqueeze(-1)
    if reduce == "prod":
        neutral: Any = 1
    elif x.dtype.is_floating_point:
        neutral = -math.inf if reduce == "amax" else math.inf
    else:
        neutral = _extreme_integer(x.dtype, lowest=reduce == "amax")
    wide = torch.where(
        is_target, src.unsqueeze(-2), torch.full((), neutral, dtype=x.dtype, device=x.device)
    )
    reduced = wide.prod(-1).to(x.dtype) if reduce == "prod" else getattr(wide, reduce)(-1)
    if include_self:
        both = {"amax": torch.maximum, "amin": torch.minimum, "prod": torch.mul}[reduce](
            moved, reduced
        )
    else:
        both = torch.where(is_target.to(torch.int32).sum(-1) > 0, reduced, moved)
    return both.movedim(-1, dim)


def index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Writes `torch.index_reduce` as a scatter by the index of whole slices."""
    import torch

    slice_indices = index.reshape(
        [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    ).expand(src.shape)
    return torch.scatter_reduce(x, dim, slice_indices, src, reduce, include_self=include_self)


def _scattered_mean(
    x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, include_self: bool
) -> Any:
    """Returns the mean of the values scattered to each place; a place without any stays
    unchanged.
    """
    import torch

    total = torch.scatter_add(x if include_self else torch.zeros_like(x), dim, index, src)
    initial_count = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = torch.scatter_add(initial_count, dim, index, torch.ones_like(src))
    return total / count if include_self else torch.where(count > 0, total / count, x)


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """Writes `torch.sort` as a ranking of the digits; returns values and indices."""
    moved = x.movedim(dim, -1)
    values, indices = _by_digits(moved, descending)
    return values.movedim(-1, dim), indices.movedim(-1, dim)


def sort_stable(
    x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    """Writes the stable overload of `torch.sort`; the sort by digits is stable already."""
    return sort(x, dim, descending)


def argsort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Returns the indices of `sort`."""
    return sort(x, dim, descending)[1]


def kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Writes `torch.kthvalue` as the last of the `k` smallest elements."""
    values, indices = topk(x, k, dim, largest=False)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def median(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """Returns the lower of the two middle elements; NaN for a row with NaN, as torch does."""
    import torch

    moved = x.movedim(dim, -1)
    ranks, length = _ranks(moved), moved.shape[-1]
    nans = (moved != moved).to(torch.int64).sum(-1, keepdim=True)
    median_rank = torch.where(nans > 0, length - nans, (length - 1) // 2)
    return _select_one(moved, ranks == median_rank, dim, keepdim)


def nanmedian(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """Writes `torch.nanmedian` over an axis by ranks, without counting NaN elements."""
    import torch

    moved = x.movedim(dim, -1)
    ranks, length = _ranks(moved), moved.shape[-1]
    nans = (moved != moved).to(torch.int64).sum(-1, keepdim=True)
    return _select_one(moved, ranks == torch.clamp(length - nans - 1, min=0) // 2, dim, keepdim)


def _select_one(
    moved: torch.Tensor, is_selected: torch.Tensor, dim: int, keepdim: bool
) -> tuple[Any, Any]:
    import torch

    zero = torch.zeros((), dtype=moved.dtype, device=moved.device)
    values = torch.where(is_selected, moved, zero).sum(-1, keepdim=True).to(moved.dtype)
    indices = torch.where(is_selected, torch.arange(moved.shape[-1], device=moved.device), 0).sum(
        -1, keepdim=True
    )
    values, indices = values.movedim(-1, dim), indices.movedim(-1, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
