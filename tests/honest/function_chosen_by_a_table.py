# problem: fused_silu
# needs: cpu
# odd: the kernel is taken from a table by the dtype of its input
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu32_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=offsets < n)


@triton.jit
def silu16_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
    tl.store(out_ptr + offsets, (x / (1.0 + tl.exp(-x))).to(out_ptr.dtype.element_ty), mask=offsets < n)


KERNELS = {torch.float32: silu32_kernel, torch.float16: silu16_kernel, torch.bfloat16: silu16_kernel}


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        launch = KERNELS[x.dtype][(triton.cdiv(x.numel(), 1024),)]
        launch(x, out, x.numel(), BLOCK=1024)
        return out
