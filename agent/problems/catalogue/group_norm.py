"""Group norm of images, with weight and bias for each channel.

x: (batch_size, channels, height, width).
"""

import torch
from torch import nn

FAMILY = "norms"
TAGS = ("memory", "reduction", "weights")
ALIASES = ("groupnorm",)

batch_size = 32
channels = 128
height = 96
width = 96
groups = 8

CPU_SIZES = {"batch_size": 3, "channels": 6, "height": 5, "width": 7, "groups": 2}


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width) * 2.0 + 0.5]


def get_init_inputs():
    return [groups, channels]
