"""Average pooling of images, padding counted.

x: (batch_size, channels, height, width). Padding counts as zeros: always divided by kernel_size squared.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "pooling"
TAGS = ("memory", "window")
ALIASES = ("avgpool2d", "average pooling", "avgpool")

batch_size = 32
channels = 64
height = 192
width = 192
kernel_size = 3
stride = 2
padding = 1

CPU_SIZES = {"batch_size": 2, "channels": 3, "height": 11, "width": 13}


class Model(nn.Module):
    def __init__(self, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(x, self.kernel_size, self.stride, self.padding)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size, stride, padding]
