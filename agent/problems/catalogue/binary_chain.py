"""Three tensors fused: (x * y + z) / (1 + |z|)."""

import torch
from torch import nn

FAMILY = "elementwise"
TAGS = ("memory", "binary")
ALIASES = ("multiply add divide", "elementwise binary chain", "fused multiply add")

rows = 4096
columns = 8191

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return (x * y + z) / (1.0 + torch.abs(z))


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []
