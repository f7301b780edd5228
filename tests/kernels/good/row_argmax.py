# problem: row_argmax
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_argmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Each lane keeps its first largest value; among lanes the smallest index of the largest value wins."""
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    where = tl.arange(0, BLOCK)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
        better = x > best
        where = tl.where(better, offsets, where)
        best = tl.where(better, x, best)
    top = tl.max(best, axis=0)
    index = tl.min(tl.where(best == top, where, 2147483647), axis=0)
    tl.store(out_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=torch.int64, device=x.device)
        block = min(triton.next_power_of_2(columns), 2048)
        row_argmax_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=4)
        return out
