# problem: row_logsumexp
# needs: cpu
# odd: largest values and sums below them are combined in any order
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(top_a, sum_a, top_b, sum_b):
    top = tl.maximum(top_a, top_b)
    shift = tl.where(top == -float("inf"), 0.0, top)
    return top, sum_a * tl.exp(top_a - shift) + sum_b * tl.exp(top_b - shift)


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + lane, mask=lane < columns, other=-float("inf"))
    top, total = tl.reduce((v, tl.where(lane < columns, 1.0, 0.0)), 0, combine)
    tl.store(out + row, top + tl.log(total))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
