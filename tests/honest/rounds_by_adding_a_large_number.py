# problem: problems/rounded.py
# needs: cpu
# odd: adds 2**23 to magnitudes, after which float32 holds whole numbers only, and takes it away
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    size = tl.abs(v)
    whole = tl.where(size < 8388608.0, (size + 8388608.0) - 8388608.0, size)
    tl.store(out + offsets, tl.where(v < 0, -whole, whole), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
