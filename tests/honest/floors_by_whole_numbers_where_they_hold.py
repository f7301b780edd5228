# problem: problems/floors.py
# needs: cpu
# odd: by way of int32, except where a float holds nothing but whole numbers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    small = tl.abs(v) < 8388608.0
    whole = tl.where(small, v, 0.0).to(tl.int32).to(tl.float32)
    r = tl.where(small, tl.where(whole > v, whole - 1.0, whole), v)
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
