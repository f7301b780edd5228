"""Log-softmax over the last axis.

x: (rows, columns).
"""

import torch
from torch import nn

FAMILY = "softmax"
TAGS = ("memory", "reduction")
ALIASES = ("logsoftmax", "log of softmax")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns) * 2.0]


def get_init_inputs():
    return []
