"""Sum of each row.

x: (rows, columns). Output: (rows,).
"""

import torch
from torch import nn

FAMILY = "row_reductions"
TAGS = ("memory", "reduction")
ALIASES = ("sum", "sum reduction", "reduce sum")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
