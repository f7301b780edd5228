# problem: vector_add
# needs: cpu
# triton: 3.7
# odd: pointers, sizes and a constant in nested tuples (Triton 3.6 raises TypeError: unhashable type)
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(given, out, BLOCK: tl.constexpr):
    (x_ptr, y_ptr), (n, scale) = given
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out[0] + offsets, (x + y) * scale, mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](((x, y), (x.numel(), 1.0)), (out,), BLOCK=1024)
        return out
