# problem: vector_add
# needs: cpu
# odd: the place of a block is put together from three axes of the grid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    a, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    block = (c * tl.num_programs(1) + b) * tl.num_programs(0) + a
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.multiple_of(i, 16)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 256)
        add_kernel[(4, 3, triton.cdiv(blocks, 12))](x, y, out, x.numel(), BLOCK=256)
        return out
