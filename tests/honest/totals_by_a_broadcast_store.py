# problem: problems/row_total_everywhere.py
# needs: cpu
# odd: one size-one sum a row, stored everywhere by a second kernel that takes an expanded view's strides
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def spread_kernel(x_ptr, out_ptr, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + offsets * column_stride, mask=offsets < columns)
    tl.store(out_ptr + row * columns + offsets, x, mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        totals = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        total_kernel[(rows,)](x, totals, columns, BLOCK=256)
        wide = totals.expand(rows, columns)
        out = torch.empty_like(x)
        spread_kernel[(rows, triton.cdiv(columns, 256))](wide, out, columns, wide.stride(0), wide.stride(1), BLOCK=256)
        return out
