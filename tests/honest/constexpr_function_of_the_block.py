# problem: fused_silu
# needs: cpu
# odd: a constexpr function halves the block; a static assert checks it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def halved(block):
    return block // 2


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    HALF: tl.constexpr = halved(BLOCK)
    tl.static_assert(HALF * 2 == BLOCK)
    for part in tl.static_range(2):
        offsets = tl.program_id(0).to(tl.int64) * BLOCK + part * HALF + tl.arange(0, HALF)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
