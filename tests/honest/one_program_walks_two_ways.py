# problem: cumsum
# needs: cpu
# odd: the row is summed from its end, and each prefix is the total less what follows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    carry = 0.0
    start = 0
    while start < columns:
        at = start + i
        values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        behind = tl.cumsum(values, axis=0, reverse=True) - values
        block = tl.sum(values, axis=0)
        tl.store(out + row * columns + at, carry + (block - behind), mask=at < columns)
        carry += block
        start += BLOCK


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        cumsum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=512)
        return out
