# problem: hardswish_chain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hardswish_root_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    gate = tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0)
    y = x * gate / 6.0
    root = tl.sqrt(tl.abs(y))
    out = tl.where(y > 0, root, tl.where(y < 0, -root, 0.0))
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        hardswish_root_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
