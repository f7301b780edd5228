# problem: row_sum
# needs: cpu
# odd: a row is summed by a dot product with ones, of which one column is kept
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, 16), dtype=tl.float32)
    ones = tl.full((C, 16), 1.0, tl.float32)
    for start in range(0, columns, C):
        column = start + tl.arange(0, C)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        total = tl.dot(x, ones, total, input_precision="ieee")
    first = tl.sum(tl.where(tl.arange(0, 16)[None, :] == 0, total, 0.0), axis=1)
    tl.store(out_ptr + row, first, mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), device=x.device, dtype=x.dtype)
        sum_kernel[(triton.cdiv(rows, 16),)](x, out, rows, columns, R=16, C=32)
        return out
