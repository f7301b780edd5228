# problem: cumsum
# needs: cpu
# odd: a decoupled look-back: blocks wait for flags that are released and acquired
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, ticket, flags, sums, totals, columns, blocks, BLOCK: tl.constexpr):
    number = tl.atomic_add(ticket, 1)
    row = number // blocks
    at = number % blocks * BLOCK + tl.arange(0, BLOCK)
    base = row.to(tl.int64) * columns
    v = tl.load(x + base + at, mask=at < columns, other=0.0)
    mine = tl.sum(v, 0)
    tl.store(sums + number, mine)
    tl.debug_barrier()
    tl.atomic_xchg(flags + number, 1, sem="release")
    before = 0.0
    look = number - 1
    while look >= row * blocks:
        state = tl.atomic_add(flags + look, 0, sem="acquire")
        while state == 0:
            state = tl.atomic_add(flags + look, 0, sem="acquire")
        if state == 2:
            before += tl.load(totals + look)
            look = -1
        else:
            before += tl.load(sums + look)
            look -= 1
    tl.store(totals + number, before + mine)
    tl.debug_barrier()
    tl.atomic_xchg(flags + number, 2, sem="release")
    tl.store(out + base + at, tl.cumsum(v, 0) + before, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[-1]
        rows = x.numel() // columns
        blocks = triton.cdiv(columns, 256)
        out = torch.empty_like(x)
        flags = torch.zeros(rows * blocks + 1, device=x.device, dtype=torch.int32)
        sums = torch.empty(2, rows * blocks, device=x.device)
        kernel[(rows * blocks,)](x, out, flags[rows * blocks :], flags, sums[0], sums[1], columns, blocks, BLOCK=256)
        return out
