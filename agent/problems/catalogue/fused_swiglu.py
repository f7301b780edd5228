"""SwiGLU: silu(first half) * second half.

x: (rows, 2 * columns), split in halves along the last axis. Output: (rows, columns).
Source: Shazeer 2020, arXiv:2002.05202.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "activations"
TAGS = ("memory", "gated")
ALIASES = ("swiglu", "silu and mul", "gated linear unit")

rows = 8192
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, dim=-1)
        return functional.silu(gate) * value


def get_inputs():
    return [torch.randn(rows, 2 * columns)]


def get_init_inputs():
    return []
