# problem: problems/mask_count_and_first_place.py
# needs: cpu
# odd: outputs of three types, booleans, int32 and int64, by one kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def above_kernel(x, above, counts, first, limit, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count = tl.zeros((), dtype=tl.int32)
    place = columns
    for start in range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        hit = tl.load(x + row * columns + o, mask=o < columns, other=-float("inf")) > limit
        hit = hit & (o < columns)
        tl.store(above + row * columns + o, hit, mask=o < columns)
        count += tl.sum(hit.to(tl.int32), axis=0)
        place = tl.minimum(place, tl.min(tl.where(hit, o, columns), axis=0))
    tl.store(counts + row, count)
    tl.store(first + row, tl.where(place < columns, place, -1).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x, limit):
        rows, columns = x.shape
        above = torch.empty_like(x, dtype=torch.bool)
        counts = torch.empty(rows, dtype=torch.int32, device=x.device)
        first = torch.empty(rows, dtype=torch.long, device=x.device)
        above_kernel[(rows,)](x, above, counts, first, limit, columns, BLOCK=256)
        return above, counts, first
