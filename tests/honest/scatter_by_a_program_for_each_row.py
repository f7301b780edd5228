# problem: scatter_add_rows
# needs: cpu
# odd: no atomics: the program of a row looks through all indices
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(base, index, values, out, picks, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(base + row * columns + at, mask=at < columns, other=0.0)
    for pick in range(picks):
        mine = tl.load(index + pick) == row
        total += tl.load(values + pick * columns + at, mask=(at < columns) & mine, other=0.0)
    tl.store(out + row * columns + at, total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, base, index, values):
        rows, columns = base.shape
        out = torch.empty_like(base)
        add_kernel[(rows, triton.cdiv(columns, 256))](base, index, values, out, index.shape[0], columns, BLOCK=256)
        return out
