# problem: problems/rotary_positions.py
# needs: cpu
# odd: its tables of cosines are buffers that are made by torch in __init__, and are not saved
import torch
import torch.nn as nn
import triton
import triton.language as tl


import math


@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, L, D: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    pos = row % L
    i = tl.arange(0, HALF)
    m = i < D // 2
    a = tl.load(x_ptr + row * D + i, mask=m)
    b = tl.load(x_ptr + row * D + D // 2 + i, mask=m)
    c = tl.load(cos_ptr + pos * (D // 2) + i, mask=m)
    s = tl.load(sin_ptr + pos * (D // 2) + i, mask=m)
    tl.store(y_ptr + row * D + i, a * c - b * s, mask=m)
    tl.store(y_ptr + row * D + D // 2 + i, b * c + a * s, mask=m)


class ModelNew(nn.Module):
    def __init__(self, width, length, base=10000):
        super().__init__()
        self.width = width
        freqs = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
        t = torch.arange(length, dtype=torch.float32)
        freqs = torch.einsum("i,j->ij", t, freqs)
        self.register_buffer("cos_cached", freqs.cos(), persistent=False)
        self.register_buffer("sin_cached", freqs.sin(), persistent=False)

    def _apply_rope(self, x):
        b, h, l, d = x.shape
        y = torch.empty_like(x)
        rope_kernel[(b * h * l,)](x, y, self.cos_cached, self.sin_cached, l, D=d, HALF=triton.next_power_of_2(d // 2))
        return y

    def forward(self, q, k):
        return self._apply_rope(q.contiguous()), self._apply_rope(k.contiguous())
