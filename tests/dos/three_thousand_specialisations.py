# problem: fused_softmax
# needs: cpu
# correct: no
# source: our own: written for the design by trace and replay
"""A kernel of which three thousand specialisations are launched."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, out, total, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + SHIFT * 0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        for shift in range(3000):
            copy_kernel[(1,)](x, out, x.numel(), SHIFT=shift, BLOCK=1024)
        return out
