# problem: problems/diagonal_matrices.py
# needs: cpu
# odd: the kernel only copies, and where the copy lies is the work
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, columns, row_stride, step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x_ptr + row * columns + at, mask=inside)
    tl.store(out_ptr + row * row_stride + at.to(tl.int64) * step, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros((rows, columns, columns), device=x.device, dtype=x.dtype)
        diagonal = out.diagonal(0, 1, 2)
        grid = (rows, triton.cdiv(columns, 128))
        copy_kernel[grid](x, diagonal, columns, diagonal.stride(0), diagonal.stride(1), BLOCK=128)
        return out
