# problem: row_sum
# fault: mismatch
# gpu-fault: non_finite
# pattern: unwritten
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        # empty, not zeros: the sum starts from whatever was there
        out = torch.empty((rows,), device=x.device)
        row_sum_kernel[(rows, triton.cdiv(columns, 1024))](x, out, columns, BLOCK=1024)
        return out
