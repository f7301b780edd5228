"""A linear layer whose leading sizes may be symbols."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """Computes a single product over all leading sizes; torch's C++ asks for their values if
    there is a bias.
    """
    import torch

    if bias is None or x.dim() <= 2:
        return torch._C._nn.linear(x, weight, bias)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return torch.addmm(bias, rows, weight.t()).reshape(*x.shape[:-1], weight.shape[0])
