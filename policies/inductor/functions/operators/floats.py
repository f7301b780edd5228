"""Numbers taken apart into mantissa and exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def frexp(x: torch.Tensor) -> tuple[Any, Any]:
    """Writes `torch.frexp` on the bits of the number: a mantissa in [0.5, 1) and an exponent.

    A subnormal number is first scaled into the normal range. Zero, infinity and NaN are returned with exponent 0.
    """
    import torch

    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    integers = torch.int64 if x.dtype == torch.float64 else torch.int32
    mantissa_bits, exponent_mask = (52, 2047) if x.dtype == torch.float64 else (23, 255)
    half_exponent = exponent_mask // 2 - 1  # the biased exponent of 0.5
    subnormal = wide.abs() < torch.finfo(wide.dtype).tiny
    # Subnormal numbers have no implicit leading bit; scaling makes them normal.
    bits = torch.where(subnormal, wide * 2.0**mantissa_bits, wide).view(integers)
    biased = (bits >> mantissa_bits) & exponent_mask
    exponent = biased - half_exponent - torch.where(subnormal, mantissa_bits, 0)
    unscaled = (bits & ~(exponent_mask << mantissa_bits)) | (half_exponent << mantissa_bits)
    plain = (wide == 0) | torch.logical_not(torch.isfinite(wide))
    mantissa = torch.where(plain, wide, unscaled.view(wide.dtype)).to(x.dtype)
    return mantissa, torch.where(plain, 0, exponent).to(torch.int32)
