# problem: row_sum
# needs: cpu
# odd: two programs of a grid of two axes share a row, and meet by an atomic addition into zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def half_sum_kernel(x, out, columns, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(part * BLOCK, columns, PARTS * BLOCK):
        total += tl.load(x + row * columns + start + i, mask=start + i < columns, other=0.0)
    tl.atomic_add(out + row, tl.sum(total, axis=0), sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_zeros(x.shape[0])
        half_sum_kernel[(2, x.shape[0])](x, out, x.shape[1], BLOCK=256, PARTS=2)
        return out
