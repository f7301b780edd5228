"""Scale, shift, then clamp: clamp(x * scale + shift, low, high)."""

import torch
from torch import nn

FAMILY = "elementwise"
TAGS = ("memory", "unary")
ALIASES = ("scale and clamp", "affine clamp", "hardtanh chain")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, scale: float, shift: float, low: float, high: float) -> None:
        super().__init__()
        self.scale = scale
        self.shift = shift
        self.low = low
        self.high = high

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x * self.scale + self.shift, self.low, self.high)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [1.5, 0.25, -1.0, 1.25]
