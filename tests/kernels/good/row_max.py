# problem: row_max
# odd: non-contiguous inputs by their strides
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = (start + tl.arange(0, BLOCK)).to(tl.int64)
        x = tl.load(x_ptr + row * row_stride + offsets * column_stride, mask=offsets < columns, other=-float("inf"))
        best = tl.maximum(best, x.to(tl.float32))
    tl.store(out_ptr + row, tl.max(best, axis=0).to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=x.dtype, device=x.device)
        block = min(triton.next_power_of_2(columns), 4096)
        row_max_kernel[(rows,)](x, out, columns, x.stride(0), x.stride(1), BLOCK=block, num_warps=8)
        return out
