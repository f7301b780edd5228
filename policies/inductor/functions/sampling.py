"""Sampling of images at coordinates in tensors.

torch's decomposition reads the border in place of elements outside and multiplies by zero, which
turns a NaN there
into NaN.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def grid_sampling(plain: Callable[..., Any]) -> Any:
    """`torch.nn.functional.grid_sample`, linear or nearest; plain: torch's own, for cubic interpolation."""

    def grid_sample(input: torch.Tensor, grid: torch.Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
        align_corners: bool | None = None) -> Any:  # fmt: skip
        import torch

        if padding_mode == "border":  # where torch's own takes a NaN for the first row and column
            grid = torch.where(
                grid == grid, grid, torch.full((), -1.0, dtype=grid.dtype, device=grid.device)
            )
        if mode == "bicubic":
            sampled = plain(input, grid, mode, padding_mode, align_corners)
            return (
                sampled.masked_fill((grid != grid).any(-1).unsqueeze(1), math.nan)
                if padding_mode == "zeros"
                else sampled
            )
        axes = range(grid.shape[-1])
        sizes = input.shape[2:]
        coordinates = [
            _element_coordinate(
                grid[..., len(axes) - 1 - axis], sizes[axis], padding_mode, bool(align_corners)
            )
            for axis in axes
        ]
        if mode == "nearest":
            return _at(input, [p.round() for p in coordinates])
        return _between(input, coordinates)

    return grid_sample


def _element_coordinate(at: torch.Tensor, size: int, padding_mode: str, align_corners: bool) -> Any:
    """A coordinate between -1 and 1 as a place among the elements of an axis."""
    coordinate = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
    if padding_mode == "reflection":
        coordinate = _reflected(coordinate, size, align_corners)
    return coordinate if padding_mode == "zeros" else coordinate.clamp(0, size - 1)


def _reflected(coordinate: torch.Tensor, size: int, align_corners: bool) -> Any:
    """Mirrored at the first and last elements, or at the edges of those, until it lies between them."""
    import torch

    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    distance = (coordinate - low).abs()
    turns = torch.floor(distance / span)
    remainder = distance - turns * span
    return torch.where(turns % 2 == 0, remainder + low, span - remainder + low)


def _between(x: torch.Tensor, coordinates: list[Any]) -> Any:
    """The sum of the elements around each place, by how near it is."""
    import torch

    before = [torch.floor(p) for p in coordinates]
    total: Any = 0
    # Interpolate between the 2^axes surrounding elements.
    for corner in itertools.product((0, 1), repeat=len(coordinates)):
        whole = [b + c for b, c in zip(before, corner, strict=True)]
        weight = math.prod(
            (b + 1 - p) if c == 0 else (p - b)
            for p, b, c in zip(coordinates, before, corner, strict=True)
        )
        total = total + _at(x, whole) * weight.unsqueeze(1)
    return total


def _at(x: torch.Tensor, coordinates: list[Any]) -> Any:
    """The elements at whole places, in all channels; zeros outside."""
    import torch

    sizes = x.shape[2:]
    inside = functools.reduce(
        operator.and_, [(p >= 0) & (p <= n - 1) for p, n in zip(coordinates, sizes, strict=True)]
    )
    indices = [torch.where(inside, p, 0.0).to(torch.int64).unsqueeze(1) for p in coordinates]
    ones = [1] * (coordinates[0].dim() - 1)
    batch = torch.arange(x.shape[0], device=x.device).view(-1, 1, *ones)
    channel = torch.arange(x.shape[1], device=x.device).view(1, -1, *ones)
    return x[(batch, channel, *indices)].masked_fill(torch.logical_not(inside).unsqueeze(1), 0.0)
