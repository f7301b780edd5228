# problem: fused_softmax
# fault: mismatch
# pattern: some_rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, chunk, BLOCK: tl.constexpr):
    """Each program walks a chunk of rows and reads one row ahead; the first row of the chunk is never what is read
    first.
    """
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    first = tl.program_id(0).to(tl.int64) * chunk
    ahead = tl.load(x_ptr + (first + 1) * columns + offsets, mask=mask & (first + 1 < rows), other=-float("inf"))
    for i in range(0, chunk):
        row = first + i
        x = ahead
        ahead = tl.load(x_ptr + (row + 1) * columns + offsets, mask=mask & (row + 1 < rows), other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * columns + offsets, numerator / tl.sum(numerator, axis=0), mask=mask & (row < rows))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        block, chunk = triton.next_power_of_2(columns), triton.cdiv(rows, 2)
        softmax_kernel[(2,)](x, out, rows, columns, chunk, BLOCK=block, num_warps=8)
        return out
