"""Compares each element of an elementwise function relative to its own size.

A row of such an output has no common scale: `silu` of numbers of every exponent spans hundreds of
powers of two, and an octave that a kernel omits is far below a row's tolerance. An element may
deviate by a factor of the errors there of eager, of the reference on perturbed inputs, and of other
roundings, and by some ulps.

Ignored: results below the type's normal numbers (float16's subnormal results are normal in float32,
and are checked), and tails, which processors that flush subnormal numbers truncate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.tolerance import Allowance, Tensor

if TYPE_CHECKING:
    import torch

MAX_HELD_INPUT = 64.0
"""Largest input for which a small output is asked; e^-64 is 2^-92."""
LEAST_OF_A_TAIL = 2.0**-50
"""Outputs of larger inputs that are smaller than this are a tail."""
RELATIVE_HINT = "Elements are wrong relative to their own size, where an input has {sign}exponent {low} to {high}."


def wrong_function_values(
    candidate: Tensor, eager: Tensor, exact: Tensor, moved: Tensor | None, inputs: Sequence[object], allow: Allowance,
) -> torch.Tensor:  # fmt: skip
    """Returns a boolean for each element, true if it deviates by more than an elementwise function
    may.

    moved: the reference on perturbed inputs; None if eager's own error is the only known noise.
    allow: the output type's.
    """
    import torch

    wide = exact.double()
    noise = (eager.double() - wide).abs()
    if moved is not None:
        noise = torch.maximum(noise, (moved.double() - wide).abs())
    noise = noise.nan_to_num_(nan=float("inf"))
    allowed = allow.factor * noise + allow.ulps * wide.abs() + _least_step(eager.dtype)
    wrong = ~((candidate.double() - wide).abs() <= allowed)
    return wrong & torch.isfinite(wide) & torch.isfinite(eager) & ~_is_tail(wide, inputs)


def _least_step(dtype: torch.dtype) -> float:
    """Returns the distance of the smallest numbers that are asked; float16's are all normal numbers of float32."""
    import torch

    limits = torch.finfo(dtype)
    if dtype == torch.float16:
        return float(limits.smallest_normal * limits.eps)
    return float(limits.smallest_normal)


def _is_tail(exact: torch.Tensor, inputs: Sequence[object]) -> torch.Tensor:
    import torch

    beyond = torch.zeros(exact.shape, dtype=torch.bool, device=exact.device)
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            try:
                beyond |= (value.abs() > MAX_HELD_INPUT).expand(exact.shape)
            except RuntimeError:  # its elements are no elements of this output
                continue
    return beyond & (exact.abs() < LEAST_OF_A_TAIL)


def exponents_of(wrong: torch.Tensor, inputs: Sequence[object]) -> str:
    """Returns which exponents of an input the wrong elements have, as a hint."""
    import torch

    for value in inputs:
        if (
            isinstance(value, torch.Tensor)
            and value.shape == wrong.shape
            and value.is_floating_point()
        ):
            numbers = value[wrong].float()
            exponents = torch.frexp(numbers).exponent - 1
            sign = "a negative sign and " if bool((numbers < 0).all()) else ""
            return RELATIVE_HINT.format(
                sign=sign, low=int(exponents.min()), high=int(exponents.max())
            )
    return "Elements are wrong relative to their own size."
