# problem: fused_silu
# needs: cpu
# odd: autograd.Function with setup_context, and a device guard round the launch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(x):
        out = torch.empty_like(x)
        with torch.cuda.device_of(x):
            silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("inference only")


class ModelNew(nn.Module):
    def forward(self, x):
        return Silu.apply(x)
