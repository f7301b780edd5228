# problem: problems/sigmoid_in_double.py
# needs: cpu
# odd: everything is in double precision, a number of the host too
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, added: tl.float64, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    small = tl.exp(-tl.abs(x))
    tl.store(out_ptr + offsets, tl.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small)) + added, mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sigmoid_kernel[(triton.cdiv(x.numel(), 256),)](x, out, float(x.shape[0]), x.numel(), BLOCK=256)
        return out
