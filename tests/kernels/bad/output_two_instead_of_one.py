# problem: row_max
# fault: output
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, index_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    where = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
        where = tl.where(x > best, offsets, where)
        best = tl.maximum(best, x)
    top = tl.max(best, axis=0)
    tl.store(out_ptr + row, top)
    tl.store(index_ptr + row, tl.min(tl.where(best == top, where, 2147483647), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), device=x.device)
        index = torch.empty((rows,), device=x.device, dtype=torch.int32)
        row_max_kernel[(rows,)](x, out, index, columns, BLOCK=1024)
        return out, index
