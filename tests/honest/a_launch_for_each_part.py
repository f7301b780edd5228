# problem: fused_silu
# needs: cpu
# odd: the input is split, and each part is a view with an offset
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        for source, target in zip(x.split(2, dim=0), out.split(2, dim=0), strict=True):
            silu_kernel[(triton.cdiv(source.numel(), 256),)](source, target, source.numel(), BLOCK=256)
        return out
