"""Causal self-attention with rotary position embeddings."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch, tokens, width, heads = 4, 512, 512, 8


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def rotate(self, x):
        half = x.shape[-1] // 2
        position = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        frequency = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = position[:, None] * frequency[None, :]
        left, right = x[..., :half], x[..., half:]
        return torch.cat(
            [left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()],
            dim=-1,
        )

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            self.qkv(x)
            .view(batch, tokens, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        made = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        return self.out(made.transpose(1, 2).reshape(batch, tokens, width))


def get_inputs():
    return [torch.randn(batch, tokens, width)]


def get_init_inputs():
    return [width, heads]
