# problem: fused_swiglu
# needs: cpu
# odd: gates and values are read as the two halves of one block of three dimensions
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(v):
    return v / (1.0 + tl.exp(-v))


@triton.jit
def swiglu_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    g = tl.load(gate + i, mask=inside, other=0.0, eviction_policy="evict_first")
    u = tl.load(up + i, mask=inside, other=0.0, eviction_policy="evict_first")
    both = tl.join(g, u)
    left, right = tl.split(both)
    tl.store(out + i, silu(left) * right, mask=inside)


class ModelNew(nn.Module):
    def forward(self, *tensors):
        gate, up = tensors if len(tensors) == 2 else (t.contiguous() for t in tensors[0].chunk(2, dim=-1))
        out = torch.empty_like(gate)
        n = out.numel()
        swiglu_kernel[(triton.cdiv(n, 1024),)](gate, up, out, n, BLOCK=1024, num_warps=8)
        return out
