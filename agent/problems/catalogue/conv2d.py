"""Convolution of images, every output channel over all input channels.

x: (batch_size, in_channels, height, width). Zero padding keeps height and width.
"""

import torch
from torch import nn

FAMILY = "convolution"
TAGS = ("compute", "fp32", "window", "weights")
ALIASES = ("conv 2d", "2d convolution", "convolution of images", "image convolution")

batch_size = 16
in_channels = 64
out_channels = 128
height = 64
width = 64
kernel_size = 3

CPU_SIZES = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
