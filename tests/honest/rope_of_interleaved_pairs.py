# problem: problems/rope_at_positions.py
# needs: cpu
# odd: one launch for queries and keys, pairs split and joined in registers, positions gathered
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _turn(src, dst, c, s, at, half, HALF: tl.constexpr):
    i = tl.arange(0, 2 * HALF)
    x = tl.load(src + at * 2 * half + i, mask=i < 2 * half, other=0.0)
    a, b = tl.split(tl.reshape(x, (HALF, 2)))
    y = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (2 * HALF,))
    tl.store(dst + at * 2 * half + i, y, mask=i < 2 * half)


@triton.jit
def _rope(q, k, positions, cos, sin, yq, yk, heads, groups, half, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token)
    d = tl.arange(0, HALF)
    c = tl.load(cos + position * half + d, mask=d < half, other=1.0)
    s = tl.load(sin + position * half + d, mask=d < half, other=0.0)
    for h in range(heads):
        _turn(q, yq, c, s, token * heads + h, half, HALF)
    for h in range(groups):
        _turn(k, yk, c, s, token * groups + h, half, HALF)


class ModelNew(nn.Module):
    def __init__(self, longest, half):
        super().__init__()
        inverse = 10000.0 ** (-torch.arange(half).float() / half)
        angle = torch.outer(torch.arange(longest).float(), inverse)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, q, k, positions):
        q, k = q.contiguous(), k.contiguous()
        yq, yk = torch.empty_like(q), torch.empty_like(k)
        half = q.shape[-1] // 2
        _rope[(positions.numel(),)](
            q,
            k,
            positions,
            self.cos,
            self.sin,
            yq,
            yk,
            q.shape[2],
            k.shape[2],
            half,
            HALF=triton.next_power_of_2(half),
            num_warps=1,
        )
        return yq, yk
