# problem: problems/lower_triangle.py
# needs: cpu
# odd: torch allocates zeros, and the kernel writes the triangle alone
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triangle_kernel(x, out, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, row + 1, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns <= row
        tl.store(out + row * size + columns, tl.load(x + row * size + columns, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        triangle_kernel[(x.shape[0],)](x, out, x.shape[0], BLOCK=32)
        return out
