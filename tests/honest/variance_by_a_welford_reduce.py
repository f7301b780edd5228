# problem: row_variance
# needs: cpu
# odd: means and squares of parts are combined by a reduction of triples
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    gap = mean_b - mean_a
    return mean_a + gap * share, squares_a + squares_b + gap * gap * count_a * share, count


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < columns
    v = tl.load(x + row * columns + lane, mask=inside, other=0.0)
    _, squares, count = tl.reduce((v, v * 0.0, inside.to(tl.float32)), 0, combine)
    tl.store(out + row, squares / (columns - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
