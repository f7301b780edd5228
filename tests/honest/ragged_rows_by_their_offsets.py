# problem: problems/sums_of_ragged_rows.py
# needs: cpu
# odd: bounds of a loop are loaded from a tensor
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ragged_kernel(x, offsets, out, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    part, c = tl.program_id(0), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(offsets + part), tl.load(offsets + part + 1)
    total = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        r = start + tl.arange(0, BLOCK)
        total += tl.load(x + r[:, None] * width + c[None, :], mask=(r[:, None] < end) & (c[None, :] < width), other=0.0)
    tl.store(out + part * width + c, tl.sum(total, axis=0), mask=c < width)


class ModelNew(nn.Module):
    def forward(self, x, offsets):
        parts, width = offsets.shape[0] - 1, x.shape[1]
        out = torch.empty((parts, width), device=x.device, dtype=x.dtype)
        ragged_kernel[(parts, triton.cdiv(width, 32))](x, offsets, out, width, BLOCK=16, WIDTH=32)
        return out
