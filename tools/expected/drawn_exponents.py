"""Draws numbers of every exponent for an input of an elementwise reference.

The reference determines their legality: at elements with a non-finite output the input keeps the
problem's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.every_exponent import (
    every_exponent,
    parts_of_every_exponent,
)

if TYPE_CHECKING:
    import torch

MAX_SQUARABLE = 2.0**60
"""Largest drawn number if operators round: its square is well inside float32's range."""
MAX_PARTS = 8
"""Calls of one size in which exponents are drawn."""


def parts_of_inputs(inputs: Sequence[Any]) -> int:
    """Returns in how many calls every exponent of every input is drawn, at most MAX_PARTS."""
    drawn = _full_tensors(inputs)
    return min(MAX_PARTS, sum(parts_of_every_exponent(tensor) for tensor in drawn))


def draw_exponents(
    inputs: list[Any],
    part: int,
    run: Callable[[list[Any]], Sequence[Any]],
    *,
    with_subnormal: bool,
) -> list[Any]:
    """Replaces a floating input by numbers of every exponent; the other inputs are unchanged.

    part: inputs alternate, and each continues after its last part. run: returns the outputs of the
    reference. with_subnormal: also draws subnormal numbers, and numbers whose squares leave
    float32's range. With rounding operators, a kernel that computes `0.01 * (g * g)` for `(0.01 *
    g) * g` overflows earlier, and a GPU's logarithm or reciprocal may treat a subnormal number as
    zero.
    """
    import torch

    tensors = _full_tensors(inputs)
    if not tensors:
        return inputs
    tensor = tensors[part % len(tensors)]
    original = tensor.clone()
    tensor.copy_(every_exponent(original, part // len(tensors)))
    if not with_subnormal and tensor.dtype != torch.float16:
        is_normal = tensor.abs() >= torch.finfo(tensor.dtype).smallest_normal
        is_squarable = is_normal & (tensor.abs() <= MAX_SQUARABLE)
        tensor.copy_(torch.where(is_squarable, tensor, original))
    undefined = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    for output in run([v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]):
        if isinstance(output, torch.Tensor) and output.shape == tensor.shape:
            numbers = output.float() if output.itemsize == 1 else output
            undefined |= ~torch.isfinite(numbers)
    tensor.copy_(torch.where(undefined, original, tensor))
    return inputs


def _full_tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Returns the contiguous floating inputs with the most elements; a row beside a matrix decides many outputs."""
    import torch

    floating = [
        v
        for v in inputs
        if isinstance(v, torch.Tensor)
        and v.is_floating_point()
        and v.itemsize > 1
        and v.is_contiguous()
    ]
    most = max((v.numel() for v in floating), default=0)
    return [v for v in floating if v.numel() == most and most]
