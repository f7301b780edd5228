"""Rounded to a grid of int8 steps, but kept in fp32.

x: (rows, columns). Rounded half to even. The step is a power of two, so that dividing by it and multiplying by its
inverse agree. The draw reaches past both ends of the grid.
"""

import torch
from torch import nn

FAMILY = "quantisation"
TAGS = ("memory", "unary")
ALIASES = ("fake quantization", "quantize dequantize", "qat rounding")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, step: float, zero_point: float) -> None:
        super().__init__()
        self.step = step
        self.zero_point = zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.clamp(torch.round(x / self.step) + self.zero_point, -128.0, 127.0)
        return (steps - self.zero_point) * self.step


def get_inputs():
    return [torch.randn(rows, columns) * 4.0]


def get_init_inputs():
    return [0.0625, 10.0]
