# problem: fused_softmax
# needs: cpu
# odd: rows are numbered through a grid of three dimensions that is a little too large
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    if row >= rows:
        return
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row.to(tl.int64) * columns + offsets, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row.to(tl.int64) * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        grid = (4, 2, triton.cdiv(rows, 8))
        softmax_kernel[grid](x, out, rows, columns, BLOCK=triton.next_power_of_2(columns))
        return out
