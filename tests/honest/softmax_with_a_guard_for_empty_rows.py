# problem: fused_softmax
# needs: cpu
# odd: an online softmax with the guards of an attention kernel: rows without a number, sums of zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    highest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + lane
        v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        new = tl.maximum(highest, tl.max(v))
        shift = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(highest - shift) + tl.sum(tl.exp(v - shift))
        highest = new
    shift = tl.where(highest == -float("inf"), 0.0, highest)
    total = tl.where(total > 0.0, total, total)
    for start in range(0, columns, BLOCK):
        at = start + lane
        v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        tl.store(out + row * columns + at, tl.exp(v - shift) / total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        kernel[(rows,)](x, out, columns, BLOCK=min(triton.next_power_of_2(columns), 1024))
        return out
