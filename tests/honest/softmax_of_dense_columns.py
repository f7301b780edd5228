# problem: fused_softmax
# needs: cpu
# odd: asserts that neighbours in a row are neighbours in memory, and uses the stride of rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_row, x_column, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * x_row + offsets * x_column, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.stride(1) == 1, "the last dimension of x must be dense"
        rows, columns = x.shape
        out = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        softmax_kernel[(rows,)](x, out, x.stride(0), 1, columns, BLOCK=triton.next_power_of_2(columns))
        return out
