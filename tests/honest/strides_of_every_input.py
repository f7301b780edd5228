# problem: problems/softmax_of_a_transposed_view.py
# needs: cpu
# odd: takes the strides of an input that is not contiguous
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * row_stride + offsets * column_stride, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row + offsets * tl.num_programs(0), e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((columns, rows), device=x.device, dtype=x.dtype).t()
        softmax_kernel[(rows,)](x, out, columns, *x.stride(), BLOCK=triton.next_power_of_2(columns))
        return out
