"""RMS norm over the last axis, with weight.

x: (rows, columns). Source: Zhang and Sennrich 2019, arXiv:1910.07467.
"""

import torch
from torch import nn

FAMILY = "norms"
TAGS = ("memory", "reduction", "weights")
ALIASES = ("rmsnorm", "root mean square norm")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, columns: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + self.eps)
        return x * scale * self.weight


def get_inputs():
    return [torch.randn(rows, columns) * 2.0]


def get_init_inputs():
    return [columns, 1e-6]
