# problem: row_sum
# fault: nondeterminism
# gpu-fault: mismatch
# needs: gpu
# The interpreter runs one program after another: there is no race to see.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """All blocks of a row read, add and write one number, without an atomic."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row, tl.load(out_ptr + row) + tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros((rows,), device=x.device)
        row_sum_kernel[(rows, triton.cdiv(columns, 64))](x, out, columns, BLOCK=64, num_warps=1)
        return out
