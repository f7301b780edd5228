# problem: row_sum
# fault: mismatch
# pattern: scaled
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0],), device=x.device)
        row_mean_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out
