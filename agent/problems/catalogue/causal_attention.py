"""Scaled dot-product attention under a causal mask.

query, key, value: (batch_size, heads, length, head_dim). Query i sees keys 0 to i.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "attention"
TAGS = ("compute", "fp32", "mask")
ALIASES = ("masked attention", "causal flash attention", "decoder attention")

batch_size = 4
heads = 8
length = 2048
head_dim = 64

CPU_SIZES = {"batch_size": 2, "heads": 3, "length": 37, "head_dim": 16}


class Model(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    shape = (batch_size, heads, length, head_dim)
    return [torch.randn(shape) * 2.0, torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
