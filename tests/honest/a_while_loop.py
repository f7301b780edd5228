# problem: row_max
# needs: cpu
# odd: a while loop over the columns
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    start = 0
    while start < columns:
        offsets = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")))
        start += BLOCK
    tl.store(out_ptr + row, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(x.shape[:1])
        max_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
        return out
