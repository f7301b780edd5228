"""Images brought to another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def interpolation(plain: Callable[..., Any]) -> Any:
    """torch's function, with sizes in the place of whole factors."""

    def interpolate(
        input: torch.Tensor,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *positional: Any,
        **options: Any,
    ) -> Any:
        """A whole factor as sizes, which stay whole numbers."""
        axes = input.dim() - 2
        factors: list[Any] = (
            list(scale_factor) if isinstance(scale_factor, tuple | list) else [scale_factor] * axes
        )
        if size is None and all(
            isinstance(f, int | float) and f == int(f) and f >= 1 for f in factors
        ):
            size, scale_factor = (
                [n * int(f) for n, f in zip(input.shape[2:], factors, strict=True)],
                None,
            )
            options.pop("recompute_scale_factor", None)
        return plain(input, size, scale_factor, *positional, **options)

    return interpolate


def scales_for_one_cell() -> None:
    """Makes torch's interpolation of a single cell return the first corner, for the rest of this
    process.

    The distance between corners is divided by at least one. Tracing assumes sizes above one and
    would otherwise fix the
    decision for every call.
    """
    import torch
    from torch._decomp import decompositions

    plain = decompositions._compute_scale

    def scale(in_size: int, out_size: int, align_corners: bool, scale: float | None = None) -> Any:
        if not align_corners or isinstance(out_size, int):
            return plain(in_size, out_size, align_corners, scale)
        return (in_size - 1.0) / torch.scalar_tensor(out_size - 1, dtype=torch.float32).clamp(
            min=1.0
        )

    decompositions._compute_scale = scale


def pixel_shuffle(x: torch.Tensor, upscale_factor: int) -> Any:
    """Writes `torch.nn.functional.pixel_shuffle` as two reshapes around a permutation."""
    *lead, channels, height, width = x.shape
    r = upscale_factor
    blocks = x.reshape(*lead, channels // (r * r), r, r, height, width)
    n = len(lead)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return blocks.permute(order).reshape(*lead, channels // (r * r), height * r, width * r)


def pixel_unshuffle(x: torch.Tensor, downscale_factor: int) -> Any:
    """Writes `torch.nn.functional.pixel_unshuffle` as two reshapes around a permutation."""
    *lead, channels, height, width = x.shape
    r = downscale_factor
    blocks = x.reshape(*lead, channels, height // r, r, width // r, r)
    n = len(lead)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return blocks.permute(order).reshape(*lead, channels * r * r, height // r, width // r)
