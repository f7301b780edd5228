# problem: problems/running_product.py
# needs: cpu
# odd: tl.cumprod within blocks, and a carry
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = 1.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=1.0)
        tl.store(out_ptr + row * columns + offsets, tl.cumprod(x, axis=0) * carry, mask=mask)
        carry *= tl.reduce(x, 0, product)


@triton.jit
def product(a, b):
    return a * b


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        product_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
