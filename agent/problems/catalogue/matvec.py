"""Matrix times vector.

a: (rows, columns), x: (columns,). Output: (rows,).
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("memory", "fp32", "reduction")
ALIASES = ("gemv", "matrix vector")

rows = 16384
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.mv(a, x)


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs():
    return []
