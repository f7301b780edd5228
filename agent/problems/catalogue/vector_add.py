"""Sum of two vectors."""

import torch
from torch import nn

FAMILY = "elementwise"
TAGS = ("memory", "binary")
ALIASES = ("add", "add two tensors", "elementwise addition")

size = 67108864

CPU_SIZES = {"size": 1031}


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def get_inputs():
    return [torch.randn(size), torch.randn(size)]


def get_init_inputs():
    return []
