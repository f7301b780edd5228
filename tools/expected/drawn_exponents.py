"""Draws numbers of every exponent for one input of a reference that computes each element by itself.

The reference says which of them it can be given: where it is not finite, the input keeps the problem's own number.
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
"""Largest number that is drawn where operators round: its square is far inside of float32."""
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
    """Replaces one floating input by numbers of every exponent; the other inputs stay.

    part: inputs take turns, and each continues where its last part ended. run: gives the outputs of the reference.
    with_subnormal: whether numbers are drawn whose squares leave float32's range, and subnormal ones. Where an operator
    rounds, a kernel that computes `0.01 * (g * g)` for `(0.01 * g) * g` overflows earlier, and a GPU's logarithm or
    reciprocal may take a subnormal number for zero.
    """
    import torch

    tensors = _full_tensors(inputs)
    if not tensors:
        return inputs
    tensor = tensors[part % len(tensors)]
    own = tensor.clone()
    tensor.copy_(every_exponent(own, part // len(tensors)))
    if not with_subnormal and tensor.dtype != torch.float16:
        is_normal = tensor.abs() >= torch.finfo(tensor.dtype).smallest_normal
        is_squarable = is_normal & (tensor.abs() <= MAX_SQUARABLE)
        tensor.copy_(torch.where(is_squarable, tensor, own))
    undefined = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    for output in run([v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]):
        if isinstance(output, torch.Tensor) and output.shape == tensor.shape:
            numbers = output.float() if output.itemsize == 1 else output
            undefined |= ~torch.isfinite(numbers)
    tensor.copy_(torch.where(undefined, own, tensor))
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
