"""Images resized with antialiasing, axis after axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Filter = Callable[[Any], Any]
"""The weight of an element, by its distance."""


def upsample_bilinear2d_aa(
    x: torch.Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    """Decomposes `interpolate(mode="bilinear", antialias=True)` with a triangle filter of width
    1.
    """
    return _resized(x, output_size, align_corners, (scales_h, scales_w), _triangle, 1)


def upsample_bicubic2d_aa(
    x: torch.Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    """Writes the operator of `interpolate(mode="bicubic", antialias=True)` with a cubic of width two."""
    return _resized(x, output_size, align_corners, (scales_h, scales_w), _cubic, 2)


def _resized(
    x: torch.Tensor,
    sizes: Sequence[int],
    align_corners: bool,
    scales: tuple[Any, Any],
    filter: Filter,
    width: int,
) -> Any:
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not x.dtype.is_floating_point:
        return NotImplemented
    resized = x.to(torch.float32)
    for axis, size, scale in ((-1, sizes[1], scales[1]), (-2, sizes[0], scales[0])):
        if statically_known_true(size == resized.shape[axis]):  # eager leaves the axis as it is
            continue
        window = _window(resized.shape[axis], size, align_corners, scale, width)
        resized = _resized_axis(resized.movedim(axis, -1), size, *window, filter, width).movedim(
            -1, axis
        )
    return resized.to(x.dtype)


def _window(size: int, out: int, align_corners: bool, scale: float, width: int) -> tuple[Any, Any]:
    """Returns the number of input elements per output element, and the largest number under the
    filter.
    """
    import torch

    if not align_corners and scale is not None and scale > 0:
        return 1.0 / scale, 2 * math.ceil(width * max(1.0 / scale, 1.0)) + 1
    steps = out - 1 if align_corners else out
    if isinstance(out, int) and steps == 0:
        return 0.0, 2 * width + 1
    reach = (width * torch.sym_max(size, steps) + steps - 1) // steps
    return ((size - 1) / steps if align_corners else size / steps), 2 * reach + 1


def _resized_axis(
    x: torch.Tensor, out: int, step: float, reach: int, filter: Filter, width: int
) -> Any:
    """Sums the elements under the filter with normalized weights; elements outside are not read,
    since they may be NaN.
    """
    import torch

    size = x.shape[-1]
    # When shrinking, the filter is stretched over `step` input elements.
    stretch = torch.full((), step, dtype=torch.float32, device=x.device).clamp(min=1.0)
    center = step * (torch.arange(out, device=x.device, dtype=torch.float32) + 0.5)[:, None]
    first = torch.floor(center - width * stretch + 0.5).clamp(min=0)
    end = torch.floor(center + width * stretch + 0.5).clamp(max=size)
    position = first + torch.arange(reach, device=x.device)
    inside = position < end
    weights = torch.where(inside, filter((position - center + 0.5) / stretch), 0.0)
    index = torch.where(inside, position, 0.0).to(torch.int64)
    elements = torch.where(inside, x[..., index], 0.0)
    return (elements * weights).sum(-1) / weights.sum(-1)


def _triangle(x: torch.Tensor) -> Any:
    return (1.0 - x.abs()).clamp(min=0)


def _cubic(x: torch.Tensor) -> Any:
    """Keys' kernel with a = -0.5, as antialiasing has it."""
    import torch

    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = -0.5 * (((x - 5.0) * x + 8.0) * x - 4.0)
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
