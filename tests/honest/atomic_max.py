# problem: row_max
# needs: cpu
# source: shared/redteam
"""Blocks of a row meet in tl.atomic_max over a full of -inf."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rowmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out + row, tl.max(tl.load(x + row.to(tl.int64) * columns + o, mask=o < columns, other=-float("inf"))))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.full((x.shape[0],), -float("inf"), device=x.device, dtype=x.dtype)
        rowmax[(triton.cdiv(x.shape[1], 1024), x.shape[0])](x, out, x.shape[1], BLOCK=1024)
        return out
