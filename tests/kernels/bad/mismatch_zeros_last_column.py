# problem: fused_silu
# fault: mismatch
# pattern: zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """The mask is one short, and the output was filled with zeros."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns - 1
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * columns + offsets, x * tl.sigmoid(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[-1]
        out = torch.zeros_like(x)
        silu_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=1024)
        return out
