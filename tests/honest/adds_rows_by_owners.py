# problem: scatter_add_rows
# needs: cpu
# odd: each row of the output looks for its picks itself, in place of atomic additions
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_add_kernel(base, index, values, out, picks, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < columns
    total = tl.load(base + row * columns + i, mask=inside, other=0.0)
    for pick in range(picks):
        if tl.load(index + pick) == row:
            total += tl.load(values + pick * columns + i, mask=inside, other=0.0)
    tl.store(out + row * columns + i, total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, base, index, values):
        out = torch.empty_like(base)
        rows, columns = base.shape
        grid = (rows, triton.cdiv(columns, 256))
        gather_add_kernel[grid](base, index, values, out, index.numel(), columns, BLOCK=256)
        return out
