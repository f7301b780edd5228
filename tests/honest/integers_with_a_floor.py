# problem: problems/counted_down.py
# needs: cpu
# odd: int32 in and out, tl.maximum of integers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def down_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr + offsets, tl.maximum(x - 1, 0), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        down_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
