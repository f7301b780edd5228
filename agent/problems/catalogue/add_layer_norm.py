"""Residual added, then layer norm; the sum is returned too.

x, residual: (rows, columns). Outputs: the normalised sum and the sum, as in a pre-norm transformer block.
"""

import torch
from torch import nn

FAMILY = "norms"
TAGS = ("memory", "reduction", "weights", "two_outputs")
ALIASES = ("residual layer norm", "fused add norm", "skip layernorm")
HELD_OUT = True

rows = 8192
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight, 1.0, 0.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return self.norm(total), total


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
