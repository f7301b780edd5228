# problem: row_argmax
# needs: cpu
# odd: the first of equal maxima by comparisons alone, block after block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    place = tl.full((BLOCK,), 2147483647, tl.int32)
    for start in range(0, columns, BLOCK):
        at = start + lane
        v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        larger = (v > best) | ((v == best) & (at < place)) | ((v != v) & (best == best))
        best = tl.where(larger & (at < columns), v, best)
        place = tl.where(larger & (at < columns), at, place)
    invalid = best != best
    if tl.max(invalid.to(tl.int32)) > 0:
        first = tl.min(tl.where(invalid, place, 2147483647))
    else:
        top = tl.max(best)
        first = tl.min(tl.where(best == top, place, 2147483647))
    tl.store(out + row, first.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        kernel[(rows,)](x, out, columns, BLOCK=min(triton.next_power_of_2(columns), 1024))
        return out
