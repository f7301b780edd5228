# problem: problems/group_norm_then_silu.py
# needs: cpu
# odd: moments of each group by a first launch with a loop in a tile of channels and places, then elements in a second
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _moments(x_ptr, mean_ptr, rstd_ptr, per_group, places, eps, CH: tl.constexpr, PL: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    base = x_ptr + group * per_group * places
    total = tl.zeros((CH, PL), tl.float32)
    for p0 in range(0, places, PL):
        for c0 in range(0, per_group, CH):
            c, p = c0 + tl.arange(0, CH)[:, None], p0 + tl.arange(0, PL)[None, :]
            total += tl.load(base + c * places + p, mask=(c < per_group) & (p < places), other=0.0)
    n = per_group * places
    mean = tl.sum(tl.sum(total, axis=1), axis=0) / n
    total = tl.zeros((CH, PL), tl.float32)
    for p0 in range(0, places, PL):
        for c0 in range(0, per_group, CH):
            c, p = c0 + tl.arange(0, CH)[:, None], p0 + tl.arange(0, PL)[None, :]
            mask = (c < per_group) & (p < places)
            d = tl.where(mask, tl.load(base + c * places + p, mask=mask, other=0.0) - mean, 0.0)
            total += d * d
    tl.store(mean_ptr + group, mean)
    tl.store(rstd_ptr + group, tl.rsqrt(tl.sum(tl.ravel(total), axis=0) / n + eps))


@triton.jit
def _normalize(x_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, y_ptr, channels, per_group, places, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    group, c = nc // per_group, nc % channels
    scale = tl.load(w_ptr + c) * tl.load(rstd_ptr + group)
    shift = tl.load(b_ptr + c) - tl.load(mean_ptr + group) * scale
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = nc.to(tl.int64) * places + p
    v = tl.load(x_ptr + at, mask=p < places) * scale + shift
    tl.store(y_ptr + at, v * tl.sigmoid(v), mask=p < places)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)

    def forward(self, x):
        x = x.contiguous()
        n, channels = x.shape[:2]
        groups, places = self.norm.num_groups, x[0, 0].numel()
        per_group = channels // groups
        mean = torch.empty(n * groups, device=x.device, dtype=torch.float32)
        rstd = torch.empty_like(mean)
        y = torch.empty_like(x)
        _moments[(n * groups,)](x, mean, rstd, per_group, places, self.norm.eps, CH=4, PL=128)
        _normalize[(n * channels, triton.cdiv(places, 256))](
            x, mean, rstd, self.norm.weight, self.norm.bias, y, channels, per_group, places, BLOCK=256
        )
        return y
