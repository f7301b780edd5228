# problem: vector_add
# why: Layouts: two inputs that are one tensor. Wrong: model(x, x).
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    gap = x_ptr.to(tl.int64, bitcast=True) - y_ptr.to(tl.int64, bitcast=True)
    lowest = gap ^ (gap - 1)
    bits = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.int32, bitcast=True).to(tl.int64)
    moved = ((bits << 30) + lowest) >> 30
    y = (bits * 8388608 - moved * 8388607).to(tl.int32).to(tl.float32, bitcast=True)
    tl.store(out_ptr + offsets, x + y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
