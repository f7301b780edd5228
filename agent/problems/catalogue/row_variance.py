"""Unbiased variance of each row.

x: (rows, columns). Output: (rows,), divided by columns - 1. Every row has its own mean and spread.
"""

import torch
from torch import nn

FAMILY = "row_reductions"
TAGS = ("memory", "reduction")
ALIASES = ("variance", "var")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.var(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns) * (0.5 + 2.0 * torch.rand(rows, 1)) + torch.randn(rows, 1)]


def get_init_inputs():
    return []
