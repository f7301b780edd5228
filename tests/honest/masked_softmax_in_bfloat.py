# problem: problems/masked_softmax.py
# needs: cpu
# odd: a mask of booleans read as int8 and compared, bfloat16 in and out, eviction and cache hints
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def msoftmax(x, m, y, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inb = c < cols
    keep = tl.load(m + r * cols + c, mask=inb, other=0, cache_modifier=".cg").to(tl.int1)
    v = tl.load(x + r * cols + c, mask=inb, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
    v = tl.where(keep & inb, v, float("-inf"))
    v = v - tl.max(v, 0)
    e = tl.exp(v)
    tl.store(y + r * cols + c, tl.fdiv(e, tl.sum(e, 0)).to(tl.bfloat16), mask=inb, cache_modifier=".cs")


class ModelNew(nn.Module):
    def forward(self, x, mask):
        y = torch.empty_like(x)
        msoftmax[(x.size(0),)](
            x, mask.view(torch.uint8), y, x.size(1), BLOCK=triton.next_power_of_2(x.size(1)), num_warps=8
        )
        return y
