# problem: row_max
# odd: a static output buffer that every call fills, and a copy of it is given out
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
        best = tl.maximum(best, x.to(tl.float32))
    tl.store(out_ptr + row, tl.max(best, axis=0).to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        if self.buffer is None or self.buffer.shape[0] != rows or self.buffer.dtype != x.dtype:
            self.buffer = torch.empty((rows,), dtype=x.dtype, device=x.device)
        block = min(triton.next_power_of_2(columns), 4096)
        row_max_kernel[(rows,)](x, self.buffer, columns, BLOCK=block, num_warps=8)
        return self.buffer.clone()
