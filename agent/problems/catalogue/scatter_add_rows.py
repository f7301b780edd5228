"""Rows added to a matrix at given indices.

base: (rows, columns), not changed. index: (picks,), int64, with repeats. values: (picks, columns).
Output: a copy of base with values[i] added to row index[i].
"""

import torch
from torch import nn

FAMILY = "embedding"
TAGS = ("memory", "scatter", "integer")
ALIASES = ("scatter add", "index add", "embedding backward")
HELD_OUT = True

rows = 16384
columns = 1024
picks = 65536

CPU_SIZES = {"rows": 7, "columns": 67, "picks": 19}


class Model(nn.Module):
    def forward(
        self, base: torch.Tensor, index: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        return base.index_add(0, index, values)


def get_inputs():
    return [
        torch.randn(rows, columns),
        torch.randint(0, rows, (picks,)),
        torch.randn(picks, columns),
    ]


def get_init_inputs():
    return []
