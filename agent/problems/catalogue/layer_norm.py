"""Layer norm over the last axis, with weight and bias.

x: (rows, columns). Weight and bias are drawn, so that leaving them out shows.
"""

import torch
from torch import nn

FAMILY = "norms"
TAGS = ("memory", "reduction", "weights")
ALIASES = ("layernorm", "ln")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight, 1.0, 0.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(rows, columns) * 2.0 + 0.5]


def get_init_inputs():
    return [columns]
