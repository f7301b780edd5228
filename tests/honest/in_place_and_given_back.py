# problem: problems/scaled_where_it_lies.py
# needs: cpu
# odd: the input is changed in place and is itself the output, as the reference's
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(x_ptr + offsets, x * 0.5 + 1.0, mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        scale_kernel[(triton.cdiv(x.numel(), 512),)](x, x.numel(), BLOCK=512)
        return x
