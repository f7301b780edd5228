# problem: fake_quantize
# needs: cpu
# odd: rounds by comparing with the halves, and cuts by two comparisons in place of a clamp
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, n, step, zero_point, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0) / step
    below = tl.floor(value)
    rest = value - below
    odd = below - 2.0 * tl.floor(below * 0.5)
    up = (rest > 0.5) | ((rest == 0.5) & (odd == 1.0))
    steps = tl.where(up, below + 1.0, below) + zero_point
    steps = tl.where(steps < -128.0, -128.0, steps)
    steps = tl.where(steps > 127.0, 127.0, steps)
    tl.store(out + at, (steps - zero_point) * step, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, step, zero_point):
        super().__init__()
        self.step, self.zero_point = step, zero_point

    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 1024),)](x, out, n, self.step, self.zero_point, BLOCK=1024)
        return out
