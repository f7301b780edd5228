# problem: row_variance
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_variance_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Two passes, so that a large mean costs no digits."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
        gap = tl.where(mask, x - mean, 0.0)
        squares += gap * gap
    variance = tl.sum(squares, axis=0) / (columns - 1)
    tl.store(out_ptr + row, variance.to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=x.dtype, device=x.device)
        block = min(triton.next_power_of_2(columns), 4096)
        row_variance_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=8)
        return out
