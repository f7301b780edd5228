"""Pooling to a given number of cells, for symbolic input sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    import torch

MAX_WINDOW_TERMS = 25
"""Maximum window size of Inductor's kernel for means over overlapping windows."""


def pooling_functions() -> dict[str, Any]:
    """Name in torch.nn.functional -> the function."""
    average = {
        f"adaptive_avg_pool{axes}d": _adaptive(axes, _window_mean, f"adaptive_avg_pool{axes}d")
        for axes in (1, 2, 3)
    }
    largest = {
        f"adaptive_max_pool{axes}d": _adaptive(axes, _window_maximum, f"adaptive_max_pool{axes}d")
        for axes in (1, 2, 3)
    }
    return average | largest


def whole_windows(max_pool1d: Callable[..., Any]) -> dict[str, Any]:
    """Returns pooling functions by name that accept a window as large as the input
    (`avg_pool2d(x, x.shape[2:])`).

    Other windows are passed on to torch. max_pool1d: this project's function.
    """
    import torch.nn.functional as functional

    functions: dict[str, Any] = {}
    for axes in (1, 2, 3):
        for name, over in ((f"avg_pool{axes}d", _mean_over), (f"max_pool{axes}d", _maximum_over)):
            plain = max_pool1d if name == "max_pool1d" else getattr(functional, name)
            functions[name] = _whole(axes, over, plain)
    return functions


def _whole(axes: int, over: Callable[[Any, list[int]], Any], plain: Callable[..., Any]) -> Any:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    def pooled(
        input: torch.Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        *positional: Any,
        **options: Any,
    ) -> Any:
        windows = (
            list(kernel_size) if isinstance(kernel_size, tuple | list) else [kernel_size] * axes
        )
        around = list(padding) if isinstance(padding, tuple | list) else [padding]
        plainly = not (
            positional or options or any(around) or all(isinstance(n, int) for n in windows)
        )
        pairs = zip(windows, input.shape[-axes:], strict=False)
        if (
            plainly
            and len(windows) == axes
            and all(statically_known_true(w == n) for w, n in pairs)
        ):
            return over(input, list(range(-axes, 0)))
        # Large overlapping windows: a mean per axis.
        if over is _mean_over and (
            alone := _one_axis_at_a_time(axes, windows, stride, around, positional, options)
        ):
            for of_axis in alone:
                input = plain(input, *of_axis, *positional, **options)
            return input
        return plain(input, kernel_size, stride, padding, *positional, **options)

    return pooled


def _one_axis_at_a_time(
    axes: int,
    windows: list[Any],
    stride: int | Sequence[int] | None,
    around: list[Any],
    positional: Sequence[Any],
    options: Mapping[str, Any],
) -> list[tuple[list[Any], ...]]:
    """Splits a two-dimensional mean into one per axis, if Inductor has no kernel for large
    overlapping windows.

    Returns windows, strides and paddings per axis; empty if Inductor has a kernel. The mean over
    a rectangle is a mean of
    means, even if its border is not counted. In three dimensions such a mean is a convolution
    (lowering/convolutions.py).
    """
    strides = list(stride) if isinstance(stride, tuple | list) else [stride] * axes
    strides = [w if s is None else s for w, s in zip(windows, strides or windows, strict=False)]
    numbers = all(isinstance(n, int) for n in (*windows, *strides))
    divided = any(n is not None for n in (*positional[2:], options.get("divisor_override")))
    if (
        axes != 2
        or not numbers
        or divided
        or strides == windows
        or math.prod(windows) <= MAX_WINDOW_TERMS
    ):
        return []
    around = around * axes if len(around) == 1 else around

    def alone(axis: int, values: list[Any], other: int) -> list[Any]:
        return [v if i == axis else other for i, v in enumerate(values)]

    return [(alone(i, windows, 1), alone(i, strides, 1), alone(i, around, 0)) for i in range(axes)]


def _mean_over(x: torch.Tensor, axes: list[int]) -> Any:
    return x.mean(axes, keepdim=True)


def _maximum_over(x: torch.Tensor, axes: list[int]) -> Any:
    return x.amax(axes, keepdim=True)


def _adaptive(axes: int, pool: Callable[[Any, Any], Any], name: str) -> Any:
    """Pools axis after axis: a window is a rectangle, whose mean is a mean of means."""

    def pooled(
        x: torch.Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
    ) -> Any:
        if return_indices:
            raise DraftRefused(f"{name} that returns indices has no kernel")
        if (
            output_size == 1
            or tuple([output_size] if isinstance(output_size, int) else output_size) == (1,) * axes
        ):
            return (
                x.mean(list(range(-axes, 0)), True)
                if pool is _window_mean
                else x.amax(list(range(-axes, 0)), True)
            )
        cells_of_axes = (
            list(output_size) if isinstance(output_size, tuple | list) else [output_size] * axes
        )
        for spatial_axis, cells in enumerate(cells_of_axes):
            axis = x.dim() - axes + spatial_axis
            if cells is not None:
                x = pool(x.movedim(axis, -1), cells).movedim(-1, axis)
        return x

    pooled.__name__ = name
    return pooled


def _window_membership(size: int, cells: int, device: torch.device) -> Any:
    """Returns [cells, size]: whether an element lies in a cell's window."""
    import torch

    cell = torch.arange(cells, device=device).unsqueeze(-1)
    position = torch.arange(size, device=device)
    return (position >= cell * size // cells) & (
        position < ((cell + 1) * size + cells - 1) // cells
    )


def _window_mean(x: torch.Tensor, cells: int) -> Any:
    import torch

    if isinstance(cells, int) and cells == 1:
        return x.mean(-1, keepdim=True)
    inside = _window_membership(x.shape[-1], cells, x.device)
    count = inside.to(torch.int32).sum(-1)
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    return (torch.where(inside, x.unsqueeze(-2), zero).sum(-1) / count).to(x.dtype)


def _window_maximum(x: torch.Tensor, cells: int) -> Any:
    import torch

    if isinstance(cells, int) and cells == 1:
        return x.amax(-1, keepdim=True)
    least = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    return torch.where(
        _window_membership(x.shape[-1], cells, x.device), x.unsqueeze(-2), least
    ).amax(-1)
