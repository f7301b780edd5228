"""Rotary position embedding of a head's halves (Su et al. 2021, arXiv:2104.09864).

x: (batch_size, heads, length, head_dim). cos, sin: (length, head_dim // 2). Each position turns the pair of element i
of the first half and element i of the second by the angle of its row.
"""

import torch
from torch import nn

FAMILY = "attention"
TAGS = ("memory", "fp32", "broadcast")
ALIASES = ("rotary embedding", "rotary position embedding", "rotary positional embedding", "rotary")

batch_size = 4
heads = 32
length = 2048
head_dim = 128

CPU_SIZES = {"batch_size": 2, "heads": 3, "length": 13, "head_dim": 10}


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def get_inputs():
    half = head_dim // 2
    turns = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(length)[:, None] * turns
    return [torch.randn(batch_size, heads, length, head_dim), torch.cos(angles), torch.sin(angles)]


def get_init_inputs():
    return []
