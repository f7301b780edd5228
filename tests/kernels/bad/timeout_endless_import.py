# problem: vector_add
# fault: timeout
import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_SIZE = 1024
while BLOCK_SIZE > 0:
    BLOCK_SIZE = max(BLOCK_SIZE // 2, 1)


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(a_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        add_kernel[(triton.cdiv(a.numel(), BLOCK_SIZE),)](a, b, out, a.numel(), BLOCK=BLOCK_SIZE)
        return out
