# problem: vector_add
# fault: import
# line: 8
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton_kernel_zoo.grids import one_dimensional


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[one_dimensional(x.numel(), 1024)](x, y, out, x.numel(), BLOCK=1024)
        return out
