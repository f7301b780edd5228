# problem: problems/transpose_square.py
# needs: cpu
# odd: tl.trans of a tile
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(
        x_ptr + rows[:, None] * size + columns[None, :], mask=(rows[:, None] < size) & (columns[None, :] < size)
    )
    tl.store(
        out_ptr + columns[:, None] * size + rows[None, :],
        tl.trans(tile),
        mask=(columns[:, None] < size) & (rows[None, :] < size),
    )


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        tiles = triton.cdiv(x.shape[0], 16)
        transpose_kernel[(tiles, tiles)](x, out, x.shape[0], BLOCK=16)
        return out
