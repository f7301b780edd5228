"""Gradients of a convolution, written with a transposed convolution, a matrix product and a sum."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Decomposes aten's operator; transposed convolutions and windows with symbolic sizes are
    left unchanged.
    """
    import torch

    kernel, axes = list(weight.shape[2:]), weight.dim() - 2
    if transposed or not all(isinstance(n, int) for n in kernel):
        return NotImplemented
    stride, padding, dilation = (
        list(n) if len(n) == axes else list(n) * axes for n in (stride, padding, dilation)
    )
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        # The gradient of the input is a transposed convolution of the output's gradient.
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        extents = zip(input.shape[2:], grad_output.shape[2:], stride, padding, reach, strict=True)
        output_padding_needed = [n - ((out - 1) * s - 2 * p + r) for n, out, s, p, r in extents]
        of_input = torch.ops.aten.convolution(
            grad_output, weight, None, stride, padding, dilation, True, output_padding_needed, groups
        )  # fmt: skip
    if output_mask[1]:
        of_weight = _of_weight(grad_output, input, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = grad_output.sum([0, *range(2, axes + 2)])
    return of_input, of_weight, of_bias


def _of_weight(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: list[Any],
    padding: list[Any],
    dilation: list[Any],
    groups: int,
) -> Any:
    """Returns the gradient of the weight: per tap, the product of the inputs under the tap with
    the output gradients.
    """
    import torch

    kernel, out = list(weight.shape[2:]), list(grad_output.shape[2:])
    around = [n for p in reversed(padding) for n in (p, p)]
    x = torch.nn.functional.pad(input, around) if any(padding) else input
    met = []
    for tap in itertools.product(*map(range, kernel)):
        part = x
        for axis, (tap_index, n, s, d) in enumerate(zip(tap, out, stride, dilation, strict=True)):
            part = part.narrow(axis + 2, tap_index * d, (n - 1) * s + 1)
            part = part[(slice(None),) * (axis + 2) + (slice(None, None, s),)] if s != 1 else part
        met.append(part)
    columns = torch.stack(met, 2)  # batch, channels, taps, *out
    batch, wide, channels = grad_output.shape[0], weight.shape[0] // groups, weight.shape[1]
    gradients = (
        grad_output.reshape(batch, groups, wide, -1).permute(1, 2, 0, 3).reshape(groups, wide, -1)
    )
    right = columns.reshape(batch, groups, channels * len(met), -1).permute(1, 0, 3, 2)
    product = gradients @ right.reshape(groups, -1, channels * len(met))
    return product.reshape(weight.shape)
