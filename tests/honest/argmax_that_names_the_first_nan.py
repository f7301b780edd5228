# problem: row_argmax
# needs: cpu
# odd: NaN counts as larger than everything, as torch has it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    nan_at = tl.full((BLOCK,), 2147483647, dtype=tl.int32)
    where = tl.arange(0, BLOCK)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        nan_at = tl.minimum(nan_at, tl.where(v != v, at, 2147483647))
        better = v > best
        where = tl.where(better, at, where)
        best = tl.where(better, v, best)
    top = tl.max(best, axis=0)
    largest = tl.min(tl.where(best == top, where, 2147483647), axis=0)
    first_nan = tl.min(nan_at, axis=0)
    tl.store(out + row, tl.where(first_nan < 2147483647, first_nan, largest).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=torch.int64, device=x.device)
        argmax_kernel[(rows,)](x, out, columns, BLOCK=min(triton.next_power_of_2(columns), 1024))
        return out
