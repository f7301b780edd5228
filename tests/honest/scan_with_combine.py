# problem: cumsum
# needs: cpu
# source: shared/redteam
"""tl.associative_scan with a helper, carry over blocks."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + o, mask=o < columns, other=0.0)
        s = tl.associative_scan(v, 0, add) + carry
        tl.store(out + row * columns + o, s, mask=o < columns)
        carry += tl.sum(v, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scan[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
        return out
