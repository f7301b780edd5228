# problem: mish
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); over 20 it is 1 to rounding."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    e = tl.exp(tl.minimum(x, 20.0))
    top = e * (e + 2.0)
    out = tl.where(x > 20.0, x, x * (top / (top + 2.0)))
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        mish_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
