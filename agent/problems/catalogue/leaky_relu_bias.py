"""Bias added, then leaky ReLU."""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "activations"
TAGS = ("memory", "weights")
ALIASES = ("leaky relu", "leakyrelu", "bias leaky relu")

rows = 8192
columns = 6000

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, columns: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(x + self.bias, self.slope)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns, 0.1]
