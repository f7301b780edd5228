"""A running total that is changed in place and returned: total = total * decay + x."""

import torch
from torch import nn

size = 33554432

CPU_SIZES = {"size": 1031}


class Model(nn.Module):
    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay

    def forward(self, total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return total.mul_(self.decay).add_(x)


def get_inputs():
    return [torch.randn(size), torch.randn(size)]


def get_init_inputs():
    return [0.875]
