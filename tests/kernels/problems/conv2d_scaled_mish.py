"""Convolution, mish, and a scale for each channel: the form of KernelBench's second level."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 32
in_channels = 8
out_channels = 64
height = 128
width = 128
kernel_size = 3

CPU_SIZES = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "height": 11, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.mish(self.conv(x)) * self.scale


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
