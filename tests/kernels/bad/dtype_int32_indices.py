# problem: row_argmax
# fault: dtype
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_argmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    where = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
        where = tl.where(x > best, offsets, where)
        best = tl.maximum(best, x)
    tl.store(out_ptr + row, tl.min(tl.where(best == tl.max(best, axis=0), where, 2147483647), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((rows,), device=x.device, dtype=torch.int32)
        row_argmax_kernel[(rows,)](x, out, columns, BLOCK=1024)
        return out
