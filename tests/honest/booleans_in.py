# problem: problems/masked_zero.py
# needs: cpu
# odd: a tensor of booleans as input
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mask_kernel(x_ptr, mask_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    hidden = tl.load(mask_ptr + offsets, mask=inside, other=1).to(tl.int1)
    x = tl.load(x_ptr + offsets, mask=inside & ~hidden, other=0.0)
    tl.store(out_ptr + offsets, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        out = torch.empty_like(x)
        mask_kernel[(triton.cdiv(x.numel(), 1024),)](x, mask, out, x.numel(), BLOCK=1024)
        return out
