# problem: problems/kept_and_scaled.py
# needs: cpu
# odd: a plain number as input, a boolean mask
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def keep_kernel(x_ptr, keep_ptr, out_ptr, p, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = tl.load(keep_ptr + offsets, mask=mask, other=0)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.where(keep != 0, x / p, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, keep, p):
        out = torch.empty_like(x)
        keep_kernel[(triton.cdiv(x.numel(), 1024),)](x, keep, out, 1.0 - p, x.numel(), BLOCK=1024)
        return out
