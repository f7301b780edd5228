# problem: problems/mean_where_a_mask_allows.py
# needs: cpu
# odd: the mask is summed as whole numbers, in the same loop as the values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x, keep, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count, total = 0, 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        k = tl.load(keep + row * columns + at, mask=at < columns, other=0) != 0
        v = tl.load(x + row * columns + at, mask=(at < columns) & k, other=0.0)
        count += tl.sum(k.to(tl.int32), axis=0)
        total += tl.sum(v, axis=0)
    tl.store(out + row, total / tl.maximum(count, 1))


class ModelNew(nn.Module):
    def forward(self, x, keep):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        mean_kernel[(rows,)](x, keep.view(torch.int8), out, columns, BLOCK=128)
        return out
