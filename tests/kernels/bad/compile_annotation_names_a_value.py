# problem: vector_add
# fault: compile
# line: 13
import torch
import torch.nn as nn
import triton
import triton.language as tl

Pointer = "*fp32"


@triton.jit
def add_kernel(a_ptr: Pointer, b_ptr: Pointer, out_ptr: Pointer, n: int, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(a_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        add_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
        return out
