"""Hard-swish, then a square root of the absolute value with the sign kept.

Inputs are wide enough for all three pieces of hard-swish.
"""

import torch
from torch import nn

FAMILY = "elementwise"
TAGS = ("memory", "unary")
ALIASES = ("hardswish", "hard swish")

rows = 8192
columns = 8000

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0
        return torch.sign(y) * torch.sqrt(torch.abs(y))


def get_inputs():
    return [torch.randn(rows, columns) * 3.0]


def get_init_inputs():
    return []
