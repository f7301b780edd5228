"""Tensor methods torch does not support with symbolic sizes or in a functional graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import PROBLEM, DraftRefused
from kernelwright.policies.inductor.tracing.loops import is_tracing_forward
from kernelwright.policies.inductor.tracing.numbers import known_sizes

if TYPE_CHECKING:
    import torch

PASSING_ON = ("proxy_tensor.py", "torch/overrides.py", "torch/utils/_device.py")
"""Files of torch through which a call of the problem's goes."""


def tensor_methods() -> list[tuple[str, Any]]:
    """Name and function of each."""
    import torch

    return [
        ("__deepcopy__", deep_copy), ("fill_diagonal_", fill_diagonal_), ("item", _item(torch.Tensor.item)),
        ("tolist", _tolist(torch.Tensor.tolist)),
        *((name, _not_numpy(getattr(torch.Tensor, name))) for name in ("numpy", "__array__")),
    ]  # fmt: skip


def _not_numpy(plain: Callable[..., Any]) -> Any:
    def numpy(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        """Refuses an array of numpy in forward, which computes on the CPU."""
        if is_tracing_forward():
            raise DraftRefused(
                "forward computes with numpy, on the CPU", advice="write it with functions of torch"
            )
        return plain(x, *args, **options)

    return numpy


def _tolist(plain: Callable[..., Any]) -> Any:
    def tolist(x: torch.Tensor) -> Any:
        """Sizes a tensor was made of, as they are. Other numbers of a tensor are not known in
        forward.
        """
        sizes = known_sizes(x)
        return plain(x) if sizes is None else sizes

    return tolist


def _item(plain: Callable[..., Any]) -> Any:
    def item(x: torch.Tensor) -> Any:
        """Returns the number as a tensor in forward, to keep arithmetic in the graph."""
        if (size := known_sizes(x)) is not None:
            return size
        return number_of(x) if is_tracing_forward() and _asked_by_the_problem() else plain(x)

    return item


def _asked_by_the_problem() -> bool:
    """Whether the call came from the problem's text, and not from within torch, which needs numbers."""
    # Walk up the stack over this package and torch's dispatch code; the next frame is the caller.
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        "inductor" in (name := frame.f_code.co_filename) or name.endswith(PASSING_ON)
    ):
        frame = frame.f_back
    return frame.f_code.co_filename == PROBLEM


def number_of(x: torch.Tensor) -> Any:
    """Returns a tensor of one element without axes, in the precision of Python's numbers."""
    import torch

    alone = x.detach().reshape(())
    return alone.to(torch.float64) if x.dtype.is_floating_point else alone


def deep_copy(x: torch.Tensor, memo: dict[int, Any]) -> Any:
    """A copy for `copy.deepcopy`, with which networks repeat a layer; torch's own asks for the memory of the tensor."""
    import torch

    if id(x) not in memo:
        duplicate: Any = x.detach().clone()
        if isinstance(x, torch.nn.Parameter):
            duplicate = torch.nn.Parameter(duplicate, x.requires_grad)
        memo[id(x)] = duplicate
    return memo[id(x)]


def fill_diagonal_(x: torch.Tensor, fill_value: float, wrap: bool = False) -> Any:
    """Writes a number on the diagonal. Raises DraftRefused if the diagonal of a tall matrix wraps
    around.
    """
    import torch

    if wrap and x.dim() == 2:
        raise DraftRefused(
            "fill_diagonal_ with wrap=True has no kernel: without it the diagonal ends at the last column"
        )
    axes = [torch.arange(n, device=x.device) for n in x.shape]
    on_diagonal = axes[-1] == axes[-2].unsqueeze(-1)
    for trailing_axes, axis in enumerate(axes[-3::-1], start=2):
        on_diagonal = on_diagonal & (axis.reshape(-1, *[1] * trailing_axes) == axes[-1])
    return x.copy_(x.masked_fill(on_diagonal, fill_value))


def take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    """Gathers after the other axes of both are made equal; torch's own asks for the sizes as numbers."""
    import torch

    if dim is None:
        x, indices, dim = x.reshape(-1), indices.reshape(-1), 0
    dim = dim % x.dim()
    wide = [b if a == 1 else a for a, b in zip(x.shape, indices.shape, strict=True)]
    source_shape = [x.shape[i] if i == dim else n for i, n in enumerate(wide)]
    index_shape = [indices.shape[i] if i == dim else n for i, n in enumerate(wide)]
    return torch.gather(
        x.expand(source_shape), dim, torch.remainder(indices, x.shape[dim]).expand(index_shape)
    )
