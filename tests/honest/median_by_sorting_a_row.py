# problem: problems/median_and_range.py
# needs: cpu
# odd: a sorted block gives three outputs
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _median(x_ptr, mid_ptr, low_ptr, high_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * columns + c, mask=c < columns, other=float("inf"))
    s = tl.sort(v)
    tl.store(mid_ptr + row, tl.sum(tl.where(c == (columns - 1) // 2, s, 0.0), axis=0))
    tl.store(low_ptr + row, tl.min(v, axis=0))
    tl.store(high_ptr + row, tl.max(tl.where(c < columns, v, float("-inf")), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        mid, low, high = (torch.empty(rows, device=x.device, dtype=x.dtype) for _ in range(3))
        _median[(rows,)](x, mid, low, high, columns, BLOCK=triton.next_power_of_2(columns))
        return mid, low, high
