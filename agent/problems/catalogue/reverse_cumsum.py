"""Running sum along each row, from the end.

x: (rows, columns). Output i is the sum of x[i:].
"""

import torch
from torch import nn

FAMILY = "scans"
TAGS = ("memory", "scan")
ALIASES = ("suffix sum", "cumsum reverse", "backward cumulative sum")
HELD_OUT = True

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x.flip(-1), dim=-1).flip(-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
