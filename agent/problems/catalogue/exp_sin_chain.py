"""exp(-|x|) * sin(x) + cos(x), element by element.

The size is odd on purpose: the last block is never full.
"""

import torch
from torch import nn

FAMILY = "elementwise"
TAGS = ("memory", "unary")
ALIASES = ("exp sin", "sin exp chain", "transcendental chain")

size = 50000001

CPU_SIZES = {"size": 1031}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-torch.abs(x)) * torch.sin(x) + torch.cos(x)


def get_inputs():
    return [torch.randn(size)]


def get_init_inputs():
    return []
