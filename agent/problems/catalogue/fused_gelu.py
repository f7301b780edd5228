"""GELU in its tanh form."""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "activations"
TAGS = ("memory", "unary")
ALIASES = ("gelu", "gelu tanh", "new gelu")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(rows, columns) * 2.0]


def get_init_inputs():
    return []
