# problem: problems/is_larger.py
# needs: cpu
# odd: the sign of a difference, infinities apart
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, y, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    w = tl.load(y + offsets, mask=mask, other=1.0)
    r = tl.where(tl.abs(v) < float("inf"), v - w > 0.0, v > w)
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
        return out
