"""Depthwise convolution of images.

x: (batch_size, channels, height, width). Each channel has its own kernel_size by kernel_size weights and bias.
"""

import torch
from torch import nn

FAMILY = "convolution"
TAGS = ("memory", "window", "weights")
ALIASES = ("depthwise conv", "depthwise convolution", "grouped conv2d")

batch_size = 32
channels = 64
height = 192
width = 192
kernel_size = 3

CPU_SIZES = {"batch_size": 2, "channels": 3, "height": 11, "width": 13}


class Model(nn.Module):
    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=kernel_size // 2, groups=channels
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size]
