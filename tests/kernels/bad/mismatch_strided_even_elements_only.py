# problem: fused_silu
# fault: mismatch
# pattern: strided
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Two elements a lane, and the second one takes the first one's sigmoid."""
    pairs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    even, odd = 2 * pairs, 2 * pairs + 1
    a = tl.load(x_ptr + even, mask=even < n, other=0.0)
    b = tl.load(x_ptr + odd, mask=odd < n, other=0.0)
    gate = tl.sigmoid(a)
    tl.store(out_ptr + even, a * gate, mask=even < n)
    tl.store(out_ptr + odd, b * gate, mask=odd < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), BLOCK=1024)
        return out
