# problem: problems/rows_turned_and_placed.py
# needs: cpu
# odd: its constructor draws weights, scales and orthogonalises them, and works out a table of its own
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn_kernel(x, turn, scale, wave, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    there = (row[:, None] < rows) & (column[None, :] < columns)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, columns, BK):
        inner = start + tl.arange(0, BK)
        inside = inner < columns
        left = tl.load(x + row[:, None] * columns + inner[None, :], (row[:, None] < rows) & inside[None, :], other=0.0)
        right_mask = (column[None, :] < columns) & inside[:, None]
        right = tl.load(turn + column[None, :] * columns + inner[:, None], right_mask, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    total = total * tl.load(scale + column, column < columns, other=0.0)[None, :]
    total += tl.load(wave + column, column < columns, other=0.0)[None, :]
    tl.store(out + row[:, None] * columns + column[None, :], total, there)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.turn = nn.Parameter(torch.empty(features, features))
        nn.init.orthogonal_(self.turn)
        self.scale = nn.Parameter(torch.randn(features) * 0.02 + 1)
        self.table = torch.linspace(0, 3, features).sin()

    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        turn_kernel[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](
            x, self.turn, self.scale, self.table, out, rows, columns, BM=32, BN=32, BK=32
        )
        return out
