# problem: problems/numbers_without_dimensions.py
# needs: cpu
# odd: two outputs of no dimension, one of them a boolean
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, high_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    high = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        high = tl.maximum(high, tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")))
    tl.store(high_ptr + row, tl.max(high, axis=0))


@triton.jit
def all_kernel(high_ptr, most_ptr, beyond_ptr, rows, BLOCK: tl.constexpr):
    most = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for begin in range(0, rows, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(high_ptr + offsets, mask=offsets < rows, other=-float("inf")))
    found = tl.max(most, axis=0)
    tl.store(most_ptr, found)
    tl.store(beyond_ptr, found > 3.0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        high = x.new_empty(rows)
        most, beyond = x.new_empty(()), torch.empty((), dtype=torch.bool, device=x.device)
        row_kernel[(rows,)](x, high, columns, BLOCK=256)
        all_kernel[(1,)](high, most, beyond, rows, BLOCK=256)
        return most, beyond
