"""Mean of each channel of an image.

x: (batch_size, channels, height, width). Output: (batch_size, channels). Every channel has its own mean.
"""

import torch
from torch import nn

FAMILY = "pooling"
TAGS = ("memory", "reduction")
ALIASES = ("global average pooling", "adaptive avg pool", "spatial mean")

batch_size = 64
channels = 512
height = 48
width = 48

CPU_SIZES = {"batch_size": 2, "channels": 3, "height": 7, "width": 9}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mean(x, dim=(2, 3))


def get_inputs():
    return [
        torch.randn(batch_size, channels, height, width) + torch.randn(batch_size, channels, 1, 1)
    ]


def get_init_inputs():
    return []
