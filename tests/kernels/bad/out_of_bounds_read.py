# problem: row_sum
# fault: out_of_bounds
# gpu-fault: non_finite
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """The mask is only on the sum, not on the load."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns + 1, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets)
        total += tl.where(offsets < columns, 1.0, 0.0) * x
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), device=x.device)
        row_sum_kernel[(rows,)](x, out, columns, BLOCK=128)
        return out
