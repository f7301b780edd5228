# problem: problems/stack_and_join.py
# needs: cpu
# odd: tl.interleave of two loads
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def join_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    both = tl.interleave(
        tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), tl.load(y_ptr + offsets, mask=offsets < n, other=0.0)
    )
    places = block * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(out_ptr + places, both, mask=places < 2 * n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty((x.shape[0], 2 * x.shape[1]), device=x.device, dtype=x.dtype)
        join_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
        return out
