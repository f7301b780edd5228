# problem: row_sum
# odd: atomics into a buffer of zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Blocks of one row are summed by different programs."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros((rows,), dtype=torch.float32, device=x.device)
        row_sum_kernel[(rows, triton.cdiv(columns, 1024))](x, out, columns, BLOCK=1024, num_warps=4)
        return out
