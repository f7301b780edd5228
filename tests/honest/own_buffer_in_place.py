# problem: fused_gelu
# needs: cpu
# source: shared/redteam
"""Writes into a buffer that the module keeps, then works on it in place in a second kernel, and gives a clone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def inner(x, t, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(t + o, 0.7978845608028654 * (v + 0.044715 * v * v * v), mask=o < n)


@triton.jit
def outer(x, t, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(t + o, mask=o < n)
    tl.store(t + o, tl.load(x + o, mask=o < n) * tl.sigmoid(2 * u), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        inner[grid](x, self.scratch, x.numel(), 1024)
        outer[grid](x, self.scratch, x.numel(), BLOCK=1024)
        return self.scratch.clone()
