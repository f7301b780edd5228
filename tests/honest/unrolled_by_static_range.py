# problem: vector_add
# needs: cpu
# odd: static_range over offsets that are made of constants
import torch
import torch.nn as nn
import triton
import triton.language as tl


PARTS = tl.constexpr(4)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * (BLOCK * PARTS)
    for part in tl.static_range(0, PARTS):
        offsets = start + part * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, cache_modifier=".cg")
        y = tl.load(y_ptr + offsets, mask=mask, eviction_policy="evict_first")
        tl.store(out_ptr + offsets, x + y, mask=mask, eviction_policy="evict_first")


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 256 * 4),)](x, y, out, x.numel(), BLOCK=256)
        return out
