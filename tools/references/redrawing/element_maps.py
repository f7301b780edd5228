"""Element-wise maps of the numbers of a problem's own draw. Each takes values and their hashes, tensors of one shape,
and returns new values; zeros stay zeros, and equal values stay equal, so tensors keep their structure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


SPECIAL_MAGNITUDES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)


def hash_of_values(values: torch.Tensor) -> Any:
    """Returns a 24-bit hash, as int32, of each value's bits."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    mixed = values.contiguous().view(bits)
    if bits is torch.int64:
        mixed = mixed ^ (mixed >> 32)
    mixed = mixed.to(torch.int32) * -1640531527
    mixed = (mixed ^ (mixed >> 15)) * -2048144777
    return (mixed >> 8) & 0xFFFFFF


def sign_of_hash(h: torch.Tensor) -> Any:
    """Returns 1 or -1 for each element, by its hash."""
    return 1 - 2 * (h & 1)


def with_signs(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns the values with half of the signs changed."""
    return x * sign_of_hash(h)


def enlarged(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns signed values, 19.7 times as large."""
    return x * sign_of_hash(h) * 19.7


def with_wide_magnitudes(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns signed values over sixteen powers of two."""
    import torch

    return x * sign_of_hash(h) * torch.exp2(((h >> 1) % 17 - 12).to(x.dtype))


def with_special_values(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns signed values, some of them zero, simple, or a hundred times as large."""
    import torch

    grown = torch.where((h >> 5) % 64 == 0, x * 100, x)
    whole = torch.tensor(SPECIAL_MAGNITUDES, dtype=x.dtype, device=x.device)[
        ((h >> 12) % len(SPECIAL_MAGNITUDES)).long()
    ]
    grown = torch.where(((h >> 1) % 16 == 1) & (x != 0), whole, grown) * sign_of_hash(h)
    return torch.where((h >> 1) % 16 == 0, zero(x, h), grown)


def made_tiny(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns a ten-thousandth of the values."""
    return x * 1e-4


def with_nan(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns the values, one in 97 of them NaN."""
    import torch

    return torch.where(((h >> 3) % 97 == 0) & (x != 0), torch.full_like(x, float("nan")), x)


def with_negative_nan(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns the values with a NaN with a set sign, as 0/0 gives on a CPU, at 1 in 97 positions."""
    import torch

    values = with_nan(x, h)
    return torch.where(torch.isnan(values), values.copysign(-torch.ones_like(values)), values)


def made_negative(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns the values below zero."""
    return -x.abs()


def with_zeros(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns the values, one in sixteen of them zero."""
    import torch

    return torch.where((h >> 1) % 16 == 0, zero(x, h), x)


def zero(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Zeros, half of them with a sign: -0.0."""
    import torch

    return torch.zeros_like(x) * sign_of_hash(h >> 9)


def huge_magnitude(x: torch.Tensor) -> float:
    """Returns a magnitude that is large in a dtype and whose square is finite in float32."""
    import torch

    return 1e3 if x.dtype == torch.float16 else 4e6


def with_infinities(x: torch.Tensor, h: torch.Tensor) -> Any:
    """Returns signed values, some of them infinite, some large powers of two."""
    import torch

    most = math.log2(huge_magnitude(x))
    power = torch.exp2((most - (h >> 9) % int(most * 0.7)).to(x.dtype))
    grown = torch.where((h >> 1) % 41 == 0, x.sign() * power, x)
    return torch.where(
        ((h >> 3) % 97 == 0) & (x != 0), torch.full_like(x, float("inf")), grown
    ) * sign_of_hash(h)


def spread_magnitudes(values: torch.Tensor, limit: int) -> Any:
    """Returns magnitudes spread evenly over powers of two, up to 2^limit and down to 2^-limit, or as far as the type
    has numbers; signs are drawn, zeros stay. With a limit of 149 some float32 are subnormal.
    """
    import torch

    most = min(float(limit), math.log2(torch.finfo(values.dtype).max) - 1)
    mixed = hash_of_values(values)
    power = (mixed % 65536) / 65536.0 * (limit + most) - limit
    size = torch.exp2(power.double()) * (1 - 2 * ((mixed >> 17) & 1))
    return torch.where(values == 0, values, size.to(values.dtype))


def made_subnormal(values: torch.Tensor) -> Any:
    """Returns the values scaled below the smallest normal number of their type; nonzero values stay
    nonzero.

    The largest magnitude becomes half of the smallest normal number.
    """
    import torch

    limits = torch.finfo(values.dtype)
    wide = values.double()
    largest = wide.abs().amax().clamp(min=1e-300)
    small = wide / largest * (limits.smallest_normal / 2)
    least = limits.smallest_normal * limits.eps
    bounded = small.abs().clamp(min=least).copysign(small)
    return torch.where(values == 0, values, bounded.to(values.dtype))
