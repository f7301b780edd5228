# problem: vector_add
# fault: out_of_bounds
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(a_ptr + offsets, mask=mask, other=0.0) + tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        # One program too many, and nothing holds it back.
        add_kernel[(triton.cdiv(out.numel(), 128) + 1,)](a, b, out, out.numel(), BLOCK=128)
        return out
