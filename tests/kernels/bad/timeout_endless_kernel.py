# problem: row_sum
# fault: timeout
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = 0
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    while start < columns:
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
        # start never grows, and the store keeps the loop alive
        tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), device=x.device)
        row_sum_kernel[(rows,)](x, out, columns, BLOCK=128)
        return out
