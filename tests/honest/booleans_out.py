# problem: problems/inside_an_interval.py
# needs: cpu
# odd: a tensor of booleans as output
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def inside_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, (x > -1.0) & (x < 1.0), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, device=x.device, dtype=torch.bool)
        inside_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
