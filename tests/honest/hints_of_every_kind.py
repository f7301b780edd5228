# problem: vector_add
# needs: cpu
# odd: hints to the compiler of every kind: assumptions, divisibility, cache and eviction, unrolling
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    tl.static_assert(BLOCK % PARTS == 0, "parts of one length")
    tl.assume(n > 0)
    begin = tl.multiple_of(tl.program_id(0) * BLOCK, BLOCK)
    WIDTH: tl.constexpr = BLOCK // PARTS
    for part in tl.range(0, PARTS, num_stages=2, loop_unroll_factor=2):
        o = begin + part * WIDTH + tl.max_contiguous(tl.arange(0, WIDTH), WIDTH)
        inside = o < n
        v = tl.load(x + o, mask=inside, other=0.0, cache_modifier=".cg", eviction_policy="evict_first")
        w = tl.load(y + o, mask=inside, eviction_policy="evict_last")
        tl.store(out + o, v + w, mask=inside, cache_modifier=".cs")


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x, memory_format=torch.preserve_format)
        n = out.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]), 1, 1)
        add_kernel[grid](x, y, out, n, BLOCK=1024, PARTS=4, num_warps=8)
        return out
