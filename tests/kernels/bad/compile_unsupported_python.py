# problem: row_max
# fault: compile
# line: 13
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    parts = [tl.load(x_ptr + row * columns + i, mask=i < columns, other=-float("inf")) for i in range(0, BLOCK) if i % 2 == 0]
    best = parts[0]
    for part in parts:
        best = tl.maximum(best, part)
    tl.store(out_ptr + row, best)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0],), device=x.device)
        row_max_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=8)
        return out
