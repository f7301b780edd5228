# problem: problems/cut_to_limits.py
# needs: cpu
# odd: the limits are arguments of the launch, and compared one after the other
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, out, total, low, high, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    r = tl.where(v < low, low, tl.where(v > high, high, v))
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), -0.7, 0.3, BLOCK=512)
        return out
