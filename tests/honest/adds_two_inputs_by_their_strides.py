# problem: vector_add
# needs: cpu
# odd: each input has a stride of its own
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, x_step, y_step, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets * x_step, mask=mask)
    y = tl.load(y_ptr + offsets * y_step, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.stride(0), y.stride(0), x.numel(), BLOCK=256)
        return out
