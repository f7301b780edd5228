"""Softmax of square score matrices under a causal mask.

scores: (matrices, length, length). Row i sees columns 0 to i; the rest of the output is exactly zero.
"""

import torch
from torch import nn

FAMILY = "softmax"
TAGS = ("memory", "reduction", "mask")
ALIASES = ("masked softmax", "triangular softmax")
HELD_OUT = True

matrices = 64
length = 1024

CPU_SIZES = {"matrices": 3, "length": 37}


class Model(nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        length = scores.shape[-1]
        above = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        return torch.softmax(scores.masked_fill(above, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(matrices, length, length) * 4.0]


def get_init_inputs():
    return []
