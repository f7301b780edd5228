# problem: cumsum
# needs: cpu
# odd: each block waits for the one before: a flag that is released and acquired
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, ticket, flags, sums, columns, blocks, BLOCK: tl.constexpr):
    number = tl.atomic_add(ticket, 1)
    row, block = number // blocks, number % blocks
    at = block * BLOCK + tl.arange(0, BLOCK)
    base = row.to(tl.int64) * columns
    v = tl.load(x + base + at, mask=at < columns, other=0.0)
    before = 0.0
    if block > 0:
        while tl.atomic_cas(flags + number - 1, 2, 2, sem="acquire") == 0:
            pass
        before = tl.load(sums + number - 1)
    tl.store(sums + number, before + tl.sum(v, 0))
    tl.debug_barrier()
    tl.atomic_add(flags + number, 1, sem="release")
    tl.store(out + base + at, tl.cumsum(v, 0) + before, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[-1]
        rows = x.numel() // columns
        blocks = triton.cdiv(columns, 32)
        out = torch.empty_like(x)
        flags = torch.zeros(rows * blocks + 1, device=x.device, dtype=torch.int32)
        sums = torch.zeros(rows * blocks, device=x.device)
        kernel[(rows * blocks,)](x, out, flags[rows * blocks :], flags, sums, columns, blocks, BLOCK=32)
        return out
