"""Attention with rows that see nothing: by a boolean mask of padding, and by a float mask."""

import torch
import torch.nn.functional as F
from torch import nn

batch = 3
heads = 2
length = 24
size = 16


class Model(nn.Module):
    def forward(self, q, k, v, lengths, bias):
        real = torch.arange(q.shape[-2], device=q.device)[None] < lengths[:, None]
        mask = real[:, None, :, None] & real[:, None, None, :]
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        added = torch.where(mask, bias, -torch.inf)
        return seen, F.scaled_dot_product_attention(q, k, v, attn_mask=added)


def get_inputs():
    shape = (batch, heads, length, size)
    lengths = torch.randint(1, 5, (batch,))
    return [
        torch.randn(shape),
        torch.randn(shape),
        torch.randn(shape),
        lengths,
        torch.randn(batch, heads, length, length),
    ]


def get_init_inputs():
    return []
