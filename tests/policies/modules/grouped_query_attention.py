"""Grouped-query attention with an additive mask: several query heads share one key and value head."""

import math

import torch
import torch.nn as nn

batch, tokens, heads, groups, head_width = 2, 256, 16, 4, 64


class Model(nn.Module):
    def __init__(self, heads, groups):
        super().__init__()
        self.heads, self.groups = heads, groups

    def forward(self, q, k, v, mask):
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~mask, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    mask = torch.tril(torch.ones(tokens, tokens, dtype=torch.bool))
    return [
        torch.randn(batch, heads, tokens, head_width),
        torch.randn(batch, groups, tokens, head_width),
        torch.randn(batch, groups, tokens, head_width),
        mask,
    ]


def get_init_inputs():
    return [heads, groups]
