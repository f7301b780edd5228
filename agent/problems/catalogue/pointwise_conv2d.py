"""Convolution of images with a 1 by 1 kernel.

x: (batch_size, in_channels, height, width): a matrix product over the channels at every pixel.
"""

import torch
from torch import nn

FAMILY = "convolution"
TAGS = ("compute", "fp32", "weights")
ALIASES = ("pointwise conv", "1x1 conv", "conv1x1")

batch_size = 16
in_channels = 128
out_channels = 128
height = 96
width = 96

CPU_SIZES = {"batch_size": 2, "in_channels": 5, "out_channels": 7, "height": 5, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
