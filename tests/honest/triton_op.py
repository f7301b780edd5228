# problem: fused_silu
# needs: cpu
# source: shared/redteam
"""torch.library.triton_op and wrap_triton."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

from torch.library import triton_op, wrap_triton


@triton.jit
def silu(x, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(out + o, v * tl.sigmoid(v), mask=o < n)


@triton_op("redteam::silu", mutates_args={})
def silu_op(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    wrap_triton(silu)[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return silu_op(x)
