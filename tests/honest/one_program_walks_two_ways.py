# problem: cumsum
# needs: cpu
# odd: blocks are walked from the row's end, and the sum before each is walked from its beginning
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    start = (columns - 1) // BLOCK * BLOCK
    while start >= 0:
        carry = 0.0
        before = 0
        while before < start:
            carry += tl.sum(tl.load(x + row * columns + before + i), axis=0)
            before += BLOCK
        at = start + i
        values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out + row * columns + at, carry + tl.cumsum(values, axis=0), mask=at < columns)
        start -= BLOCK


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        cumsum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=512)
        return out
