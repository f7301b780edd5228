# problem: fused_silu
# needs: cpu
# source: shared/redteam
"""torch.library.custom_op with a fake, around a launch."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(out + o, v / (1 + tl.exp(-v)), mask=o < n)


@torch.library.custom_op("redteam::silu2", mutates_args=())
def silu_op(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    silu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@silu_op.register_fake
def _(x):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return silu_op(x)
