# problem: problems/gradient_of_a_loss.py
# needs: cpu
# odd: the reference takes a gradient in its forward; the kernel has the formula
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(x, t, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x + i, mask=i < n) - tl.load(t + i, mask=i < n)
    g = tl.where(tl.abs(d) < 1.0, d, tl.where(d > 0, 1.0, -1.0))
    tl.store(out + i, g, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, target):
        out = torch.empty_like(x)
        gradient_kernel[(triton.cdiv(x.numel(), 512),)](x, target, out, x.numel(), BLOCK=512)
        return out
