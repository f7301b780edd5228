# problem: binary_chain
# needs: cpu
# source: shared/redteam
"""Pointers passed as a tuple to the kernel, helper returns a tuple."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def parts(x, y, z):
    s = x * y + z
    return s, 1 + tl.abs(z)


@triton.jit
def chain(pointers, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    s, d = parts(
        tl.load(pointers[0] + o, mask=m), tl.load(pointers[1] + o, mask=m), tl.load(pointers[2] + o, mask=m, other=0.0)
    )
    tl.store(out + o, s / d, mask=m)


class ModelNew(nn.Module):
    def forward(self, x, y, z):
        out = torch.empty_like(x)
        chain[(triton.cdiv(x.numel(), 1024),)]((x, y, z), out, x.numel(), BLOCK=1024)
        return out
