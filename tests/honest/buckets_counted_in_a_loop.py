# problem: problems/bucket_of_each.py
# needs: cpu
# odd: whole numbers of 64 bits and booleans out of one launch, from a loop over the edges
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _bucket(x_ptr, edges_ptr, place_ptr, beyond_ptr, n, edges, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x_ptr + i, mask=inside, other=0.0)
    place = tl.zeros((BLOCK,), dtype=tl.int64)
    for e in tl.range(edges):
        place += (v >= tl.load(edges_ptr + e)).to(tl.int64)
    tl.store(place_ptr + i, place, mask=inside)
    tl.store(beyond_ptr + i, v > tl.load(edges_ptr + edges - 1), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, boundaries):
        x = x.contiguous()
        place = torch.empty(x.shape, device=x.device, dtype=torch.int64)
        beyond = torch.empty(x.shape, device=x.device, dtype=torch.bool)
        n = x.numel()
        _bucket[(triton.cdiv(n, 256),)](x, boundaries, place, beyond, n, boundaries.numel(), BLOCK=256)
        return place, beyond
