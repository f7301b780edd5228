"""Scaled dot-product attention.

query, key, value: (batch_size, heads, length, head_dim). Scores are divided by sqrt(head_dim).
Queries are scaled up, so that the weights differ from a plain mean.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "attention"
TAGS = ("compute", "fp32")
ALIASES = ("flash attention", "sdpa", "self attention")

batch_size = 4
heads = 16
length = 1024
head_dim = 64

CPU_SIZES = {"batch_size": 2, "heads": 3, "length": 37, "head_dim": 16}


class Model(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value)


def get_inputs():
    shape = (batch_size, heads, length, head_dim)
    return [torch.randn(shape) * 2.0, torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
