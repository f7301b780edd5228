"""Running sum along each row.

x: (rows, columns).
"""

import torch
from torch import nn

FAMILY = "scans"
TAGS = ("memory", "scan")
ALIASES = ("cumulative sum", "prefix sum", "inclusive scan")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
