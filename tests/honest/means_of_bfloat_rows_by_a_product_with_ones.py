# problem: problems/means_of_bfloat_rows.py
# needs: cpu
# odd: sums by tl.dot with a column of ones, blocks of sixteen rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, 16), dtype=tl.float32)
    ones = tl.full((BLOCK, 16), 1.0, dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(
            x + r[:, None] * columns + at[None, :], mask=(r < rows)[:, None] & (at < columns)[None, :], other=0.0
        )
        total = tl.dot(v.to(tl.float32), ones, total, input_precision="ieee")
    tl.store(out + r, (tl.max(total, axis=1) / columns).to(tl.bfloat16), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        mean_kernel[(triton.cdiv(rows, 16),)](x, out, rows, columns, ROWS=16, BLOCK=64)
        return out
