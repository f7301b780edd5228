"""Max pooling of sequences.

x: (batch_size, channels, length). What lies in the padding never wins.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "pooling"
TAGS = ("memory", "window")
ALIASES = ("maxpool1d", "max pooling 1d", "maxpool")

batch_size = 64
channels = 128
length = 8192
kernel_size = 5
stride = 2
padding = 2

CPU_SIZES = {"batch_size": 2, "channels": 3, "length": 67}


class Model(nn.Module):
    def __init__(self, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool1d(x, self.kernel_size, self.stride, self.padding)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [kernel_size, stride, padding]
