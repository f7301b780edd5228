# problem: vector_add
# fault: crash
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

sys.setrecursionlimit(1 << 30)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


class Chunks:
    """Sorts its own parts by comparing them with themselves."""

    def __lt__(self, other):
        return sorted([self, other])[0] is self


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[(1,)](x, y, out, 0, x.numel(), BLOCK=1024)
        return out if Chunks() < Chunks() else out
