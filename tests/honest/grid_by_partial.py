# problem: fused_silu
# needs: cpu
# odd: the grid is a functools.partial, the launcher another one
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


def programs(n, meta):
    return (triton.cdiv(n, meta["BLOCK"]), 1, 1)


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        launch = functools.partial(silu_kernel[functools.partial(programs, n)], BLOCK=256, num_warps=2)
        launch(x, out, n)
        return out
