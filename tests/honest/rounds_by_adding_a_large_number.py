# problem: problems/rounded.py
# needs: cpu
# odd: adds 1.5 * 2**23, after which float32 holds whole numbers only, and takes it away
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    r = tl.where(tl.abs(v) < 4194304.0, (v + 12582912.0) - 12582912.0, v)
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
