# problem: mish
# needs: gpu
# on-cpu: needs-gpu
# source: shared/redteam
"""rcp.approx by inline PTX: no CPU can interpret it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish(x, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    sp = tl.where(v > 20, v, tl.log(1 + tl.exp(v)))
    e = tl.exp(-2 * sp)
    r = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [1 + e], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + o, v * (1 - e) * r, mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        mish[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
