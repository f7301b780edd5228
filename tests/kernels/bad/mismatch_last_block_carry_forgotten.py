# problem: cumsum
# fault: mismatch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Every block starts from zero again."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * columns + offsets, tl.cumsum(x, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        cumsum_kernel[(rows,)](x, out, columns, BLOCK=64)
        return out
