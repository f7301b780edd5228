"""Bit patterns of every exponent with both signs, for elementwise functions.

A function may be wrong in one octave alone, in its tail, or on subnormal numbers. Elements are independent of one
another there, so one call can hold a number of each octave: of a type of 16 bits all 65,536 patterns are drawn, of a
wider one every exponent with several mantissas. Patterns of infinities and NaN are left to other draws.

Example: 6,144 float32 elements hold each of the 255 finite exponents with each sign about twelve times.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelwright.tools.references.redrawing.isolation import scatter

if TYPE_CHECKING:
    import torch

PATTERNS_OF_16_BITS = 1 << 16
PATTERN_STRIDE = 40503
"""Odd: its multiples visit every 16-bit pattern, and any few thousand of them each exponent."""
MANTISSAS = 4
"""Minimum number of mantissas drawn per exponent and sign, if there is room."""
TYPES_OF_BITS = {2: "int16", 4: "int32", 8: "int64"}


def parts_of_every_exponent(tensor: torch.Tensor) -> int:
    """Returns the number of calls for all patterns of `every_exponent` in this type and size."""
    if tensor.itemsize == 2:
        patterns = PATTERNS_OF_16_BITS
    else:
        patterns = 2 * _finite_exponents(tensor) * MANTISSAS
    return math.ceil(patterns / max(tensor.numel(), 1))


def every_exponent(tensor: torch.Tensor, part: int) -> torch.Tensor:
    """Returns numbers of every exponent in a tensor's type and shape; zeros stay zero, as do
    elements at patterns of NaN or infinity.

    part: number of the part of the patterns to draw; patterns repeat after the last.
    """
    import torch

    bits = getattr(torch, TYPES_OF_BITS[tensor.itemsize])
    index = part * tensor.numel() + torch.arange(tensor.numel(), device=tensor.device)
    if tensor.itemsize == 2:
        patterns = index * PATTERN_STRIDE % PATTERNS_OF_16_BITS
        patterns = patterns - PATTERNS_OF_16_BITS * (patterns >= PATTERNS_OF_16_BITS // 2)
    else:
        patterns = _wide_patterns(tensor, index)
    numbers = patterns.to(bits).view(tensor.dtype).view(tensor.shape)
    return torch.where(torch.isfinite(numbers) & (tensor != 0), numbers, tensor)


def _wide_patterns(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Patterns of 32 or 64 bits, as whole numbers: the exponent changes fastest, then the sign, then the mantissa,
    which is scattered, then zero, then all ones.
    """
    import torch

    exponents = _finite_exponents(tensor)
    mantissa_bits = -int(math.log2(torch.finfo(tensor.dtype).eps))
    turn = index // (2 * exponents)
    ones = (1 << mantissa_bits) - 1
    mantissa = scatter(scatter(index)) * (ones // 2147483647 + 1) & ones
    mantissa = torch.where(turn % MANTISSAS == 1, 0, mantissa)
    mantissa = torch.where(turn % MANTISSAS == 2, ones, mantissa)
    magnitude = (index % exponents << mantissa_bits) | mantissa
    negative = index // exponents % 2 == 1
    lowest = -(1 << (8 * tensor.itemsize - 1))
    return torch.where(negative, lowest + magnitude, magnitude)


def _finite_exponents(tensor: torch.Tensor) -> int:
    """Returns the number of exponent fields of finite numbers: 255 for float32."""
    import torch

    limits = torch.finfo(tensor.dtype)
    return round(math.log2(limits.max) - math.log2(limits.smallest_normal)) + 1
