"""Rows of a matrix picked by index.

x: (rows, columns). index: (picks,), int64, repeats allowed. Output: (picks, columns).
"""

import torch
from torch import nn

FAMILY = "embedding"
TAGS = ("memory", "gather", "integer")
ALIASES = ("gather", "index select", "take rows")

rows = 65536
columns = 1024
picks = 32768

CPU_SIZES = {"rows": 11, "columns": 67, "picks": 7}


class Model(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, 0, index)


def get_inputs():
    return [torch.randn(rows, columns), torch.randint(0, rows, (picks,))]


def get_init_inputs():
    return []
