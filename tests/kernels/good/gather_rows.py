# problem: gather_rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_rows_kernel(x_ptr, index_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    pick = tl.program_id(0).to(tl.int64)
    row = tl.load(index_ptr + pick)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    tl.store(out_ptr + pick * columns + offsets, tl.load(x_ptr + row * columns + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x, index = x.contiguous(), index.contiguous()
        columns = x.shape[1]
        out = torch.empty((index.shape[0], columns), device=x.device, dtype=x.dtype)
        gather_rows_kernel[(index.shape[0], triton.cdiv(columns, 1024))](x, index, out, columns, BLOCK=1024)
        return out
