"""Hinge loss: mean of max(0, 1 - prediction * target).

targets: -1 or 1 in fp32. Output: a scalar.
"""

import torch
from torch import nn

FAMILY = "losses"
TAGS = ("memory", "reduction", "scalar")
ALIASES = ("hinge", "margin loss")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.clamp(1.0 - predictions * targets, min=0.0).mean()


def get_inputs():
    scale = 0.5 + torch.rand(())
    return [torch.randn(rows, columns) * scale, torch.randint(0, 2, (rows, columns)) * 2.0 - 1.0]


def get_init_inputs():
    return []
