# problem: problems/whole_row_sums.py
# needs: cpu
# odd: 64-bit whole numbers, added by blocks and one atomic for each
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row.to(tl.int64) * columns + offsets, mask=offsets < columns, other=0)
    tl.atomic_add(out + row, tl.sum(v, axis=0), sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_zeros(x.shape[0])
        sum_kernel[(x.shape[0], triton.cdiv(x.shape[1], 128))](x, out, x.shape[1], BLOCK=128)
        return out
