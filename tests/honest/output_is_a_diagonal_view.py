# problem: row_sum
# needs: cpu
# odd: the sums are the diagonal of a square buffer, returned as a view with a stride of rows + 1
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, columns, step, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row * step, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        pairs = torch.empty((rows, 2), device=x.device, dtype=x.dtype)
        out = pairs.as_strided((rows,), (2,), 1)
        sum_kernel[(rows,)](x, out, columns, out.stride(0), BLOCK=128)
        return out.clone()
