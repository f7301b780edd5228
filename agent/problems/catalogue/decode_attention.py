"""One query a sequence against its cached keys and values, heads in groups.

query: (batch_size, heads, head_dim). keys, values: (batch_size, kv_heads, length, head_dim); heads is a multiple of
kv_heads, and each group of heads // kv_heads queries shares one key head.
"""

import math

import torch
from torch import nn

FAMILY = "attention"
TAGS = ("memory", "fp32", "reduction")
ALIASES = ("decoding attention", "kv cache attention", "gqa decode", "paged attention")
HELD_OUT = True

batch_size = 16
heads = 32
kv_heads = 8
length = 2048
head_dim = 128

CPU_SIZES = {"batch_size": 2, "heads": 4, "kv_heads": 2, "length": 37, "head_dim": 16}


class Model(nn.Module):
    def forward(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        groups = query.shape[1] // keys.shape[1]
        keys = keys.repeat_interleave(groups, dim=1)
        values = values.repeat_interleave(groups, dim=1)
        scores = torch.einsum("bhd,bhld->bhl", query, keys) / math.sqrt(query.shape[-1])
        return torch.einsum("bhl,bhld->bhd", torch.softmax(scores, dim=-1), values)


def get_inputs():
    cache = (batch_size, kv_heads, length, head_dim)
    return [torch.randn(batch_size, heads, head_dim) * 2.0, torch.randn(cache), torch.randn(cache)]


def get_init_inputs():
    return []
