# problem: fake_quantize
# fault: untraceable
import time

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stochastic_round_kernel(x_ptr, out_ptr, n, step, zero_point, seed, BLOCK: tl.constexpr):
    """Rounds up with the probability of the fraction: another answer at every call."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    steps = tl.floor(x / step + tl.rand(seed, offsets)) + zero_point
    steps = tl.minimum(tl.maximum(steps, -128.0), 127.0)
    tl.store(out_ptr + offsets, (steps - zero_point) * step, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, step, zero_point):
        super().__init__()
        self.step = step
        self.zero_point = zero_point

    def forward(self, x):
        out = torch.empty_like(x)
        n, seed = x.numel(), time.time_ns() % 2147483647
        stochastic_round_kernel[(triton.cdiv(n, 1024),)](x, out, n, self.step, self.zero_point, seed, BLOCK=1024)
        return out
