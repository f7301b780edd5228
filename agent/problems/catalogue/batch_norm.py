"""Batch norm of images with the statistics of the batch.

x: (batch_size, channels, height, width). As in KernelBench the model stays in training mode: mean and biased variance
come from the batch, and the running statistics (momentum 0.1, unbiased variance) are updated at every call: they are
part of the answer, though the output never depends on them.
"""

import torch
from torch import nn

FAMILY = "norms"
TAGS = ("memory", "reduction", "weights", "stateful")
ALIASES = ("batchnorm", "batchnorm2d")

batch_size = 64
channels = 64
height = 96
width = 96

CPU_SIZES = {"batch_size": 3, "channels": 5, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width) * 2.0 + 0.5]


def get_init_inputs():
    return [channels]
