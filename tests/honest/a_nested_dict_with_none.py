# problem: problems/statistics_in_a_dict.py
# needs: cpu
# odd: outputs in a dict of tensors, a pair and None
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stats(x, mean, low, high, y, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.0)
    mu = tl.sum(v, 0) / n
    tl.store(mean + r, mu)
    tl.store(low + r, tl.min(tl.where(m, v, float("inf")), 0))
    tl.store(high + r, tl.max(tl.where(m, v, float("-inf")), 0))
    tl.store(y + r * n + c, v - mu, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        stat = torch.empty((3, x.shape[0]), device=x.device, dtype=x.dtype)
        y = torch.empty_like(x)
        stats[(x.shape[0],)](x, stat[0], stat[1], stat[2], y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return dict(centre=stat[0], range=[stat[1], stat[2]], extra=None, y=y)
