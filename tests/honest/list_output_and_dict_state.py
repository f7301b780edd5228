# problem: add_layer_norm
# needs: cpu
# source: shared/redteam
"""Two outputs returned as a list; parameters by other names than the reference's, in the same order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused(x, y, w, b, s_out, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    m = o < columns
    v = tl.load(x + row * columns + o, mask=m, other=0.0) + tl.load(y + row * columns + o, mask=m, other=0.0)
    tl.store(s_out + row * columns + o, v, mask=m)
    mean = tl.sum(v, axis=0) / columns
    d = tl.where(m, v - mean, 0.0)
    r = 1.0 / tl.sqrt_rn(tl.sum(d * d, axis=0) / columns + eps)
    tl.store(
        out + row * columns + o, d * r * tl.load(w + o, mask=m, other=0.0) + tl.load(b + o, mask=m, other=0.0), mask=m
    )


class ModelNew(nn.Module):
    def __init__(self, columns, *rest):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.shift = nn.Parameter(torch.zeros(columns))

    def forward(self, x, y):
        out, s = torch.empty_like(x), torch.empty_like(x)
        fused[(x.shape[0],)](
            x, y, self.scale, self.shift, s, out, x.shape[1], 1e-5, BLOCK=triton.next_power_of_2(x.shape[1])
        )
        return [out, s]
