# problem: problems/ranks_of_whole_rows.py
# needs: cpu
# odd: an argsort by counting who comes before, scattered to its place
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _rank(x_ptr, order_ptr, rank_ptr, columns, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(x_ptr + row * columns + i, mask=i < columns, other=0)
    rank = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, columns, CHUNK):
        j = start + tl.arange(0, CHUNK)
        other = tl.load(x_ptr + row * columns + j, mask=j < columns, other=0)
        first = (other[None, :] < mine[:, None]) | ((other[None, :] == mine[:, None]) & (j[None, :] < i[:, None]))
        rank += tl.sum((first & (j[None, :] < columns)).to(tl.int32), axis=1)
    tl.store(rank_ptr + row * columns + i, rank.to(tl.int64), mask=i < columns)
    tl.store(order_ptr + row * columns + rank, i.to(tl.int64), mask=i < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        order, rank = torch.empty_like(x), torch.empty_like(x)
        _rank[(rows, triton.cdiv(columns, 64))](x, order, rank, columns, BLOCK=64, CHUNK=32)
        return order, rank
