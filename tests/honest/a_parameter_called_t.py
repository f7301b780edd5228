# problem: vector_add
# needs: cpu
# odd: numbers of the kernel have the names under which a trace keeps tensors and data
"""Parameters may have any name: a trace must not take a number called `t` for a tensor."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(data, other, out, t, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < t
    total = tl.load(data + offsets, mask=mask) + tl.load(other + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
