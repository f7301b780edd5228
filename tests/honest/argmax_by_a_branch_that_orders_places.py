# problem: row_argmax
# needs: cpu
# odd: a reduction that branches, and takes the lower place among equal values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def larger(a, i, b, j):
    if (b > a) | ((b == a) & (j < i)):
        a = b
        i = j
    return a, i


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + lane, mask=lane < columns, other=-float("inf"))
    _, place = tl.reduce((v, lane), 0, larger)
    tl.store(out + row, place.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=torch.int64)
        kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
