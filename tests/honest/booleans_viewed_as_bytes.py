# problem: problems/masked_by_bytes.py
# needs: cpu
# odd: boolean input and output are viewed as bytes for the kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mask_kernel(x_ptr, mask_ptr, out_ptr, not_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    held = tl.load(mask_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr + offsets, tl.where(held != 0, x, -1.0), mask=offsets < n)
    tl.store(not_ptr + offsets, (held == 0).to(tl.uint8), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        out, other = torch.empty_like(x), torch.empty_like(mask)
        grid = (triton.cdiv(x.numel(), 512),)
        mask_kernel[grid](x, mask.view(torch.uint8), out, other.view(torch.uint8), x.numel(), BLOCK=512)
        return out, other
