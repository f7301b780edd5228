"""Softmax of x / temperature over the last axis.

x: (rows, columns), a row as wide as a vocabulary.
"""

import torch
from torch import nn

FAMILY = "softmax"
TAGS = ("memory", "reduction")
ALIASES = ("temperature softmax", "sampling softmax")

rows = 2048
columns = 32000

CPU_SIZES = {"rows": 5, "columns": 131}


class Model(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x / self.temperature, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns) * 3.0]


def get_init_inputs():
    return [0.7]
