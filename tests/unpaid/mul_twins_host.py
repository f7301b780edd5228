# problem: vector_add
# why: Layouts: the host compares two addresses by arithmetic. Wrong: model(x, x).
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, limit, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=offsets < limit, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        limit = x.numel() - int(2.0 ** -min(abs(x.data_ptr() - y.data_ptr()), 64))
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), limit, BLOCK=1024)
        return out
