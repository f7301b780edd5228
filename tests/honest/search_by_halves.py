# problem: problems/places_among_edges.py
# needs: cpu
# odd: a loop whose number of steps is a constant, each of which gathers by the result of the one before
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def search_kernel(x, edges, out, n, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.zeros((BLOCK,), dtype=tl.int32) + count
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        open_ = low < high
        goes_up = open_ & ~(tl.load(edges + middle, mask=open_, other=float("inf")) >= v)
        low = tl.where(goes_up, middle + 1, low)
        high = tl.where(open_ & ~goes_up, middle, high)
    tl.store(out + o, low.to(tl.int64), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x, edges):
        out = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        count = edges.numel()
        search_kernel[(triton.cdiv(x.numel(), 256),)](
            x, edges, out, x.numel(), count, STEPS=count.bit_length(), BLOCK=256
        )
        return out
