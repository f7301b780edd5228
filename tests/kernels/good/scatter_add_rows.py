# problem: scatter_add_rows
# odd: atomics after a copy
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(base_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(base_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def add_rows_kernel(index_ptr, values_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    pick = tl.program_id(0).to(tl.int64)
    row = tl.load(index_ptr + pick)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    value = tl.load(values_ptr + pick * columns + offsets, mask=mask)
    tl.atomic_add(out_ptr + row * columns + offsets, value, mask=mask, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, base: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        base, index, values = base.contiguous(), index.contiguous(), values.contiguous()
        columns = base.shape[1]
        out = torch.empty_like(base)
        copy_kernel[(triton.cdiv(base.numel(), 1024),)](base, out, base.numel(), BLOCK=1024)
        add_rows_kernel[(index.shape[0], triton.cdiv(columns, 1024))](index, values, out, columns, BLOCK=1024)
        return out
