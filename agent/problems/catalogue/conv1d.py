"""Convolution of sequences.

x: (batch_size, in_channels, length). Padded with zeros by kernel_size // 2 on each side.
"""

import torch
from torch import nn

FAMILY = "convolution"
TAGS = ("compute", "fp32", "window", "weights")
ALIASES = ("convolution 1d", "temporal convolution")

batch_size = 16
in_channels = 64
out_channels = 128
length = 8192
kernel_size = 3

CPU_SIZES = {"batch_size": 2, "in_channels": 5, "out_channels": 7, "length": 37}


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
