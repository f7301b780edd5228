# problem: row_sum
# fault: nondeterminism
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sum_kernel(x_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(total_ptr + row, tl.sum(x, axis=0))


@triton.jit
def copy_kernel(total_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < rows
    tl.store(out_ptr + offsets, tl.load(total_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    """The buffer of zeros is kept between calls, and nobody clears it: right the first time only."""

    def __init__(self):
        super().__init__()
        self.totals = {}

    def forward(self, x):
        rows, columns = x.shape
        if rows not in self.totals:
            self.totals[rows] = torch.zeros((rows,), device=x.device)
        out = torch.empty((rows,), device=x.device)
        partial_sum_kernel[(rows, triton.cdiv(columns, 1024))](x, self.totals[rows], columns, BLOCK=1024)
        copy_kernel[(triton.cdiv(rows, 1024),)](self.totals[rows], out, rows, BLOCK=1024)
        return out
