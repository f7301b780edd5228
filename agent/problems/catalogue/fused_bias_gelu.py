"""Bias added, then GELU in its exact (erf) form."""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "activations"
TAGS = ("memory", "weights")
ALIASES = ("bias gelu", "add bias gelu", "gelu erf")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x + self.bias)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
