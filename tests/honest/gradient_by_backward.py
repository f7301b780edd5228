# problem: problems/gradient_of_a_loss.py
# needs: cpu
# odd: loss.backward() in the candidate's own forward, over two Functions whose backwards are kernels
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clip_kernel(d, g, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(d + i, mask=i < n, other=0.0)
    tl.store(out + i, tl.minimum(tl.maximum(v, -1.0), 1.0) * tl.load(g), mask=i < n)


@triton.jit
def difference_kernel(x, t, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) - tl.load(t + i, mask=i < n), mask=i < n)


def grid(x):
    return (triton.cdiv(x.numel(), 256),)


class Difference(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        out = torch.empty_like(x)
        difference_kernel[grid(x)](x, target, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, upstream):
        return upstream, None


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, d):
        ctx.save_for_backward(d)
        return d.new_zeros(())

    @staticmethod
    def backward(ctx, upstream):
        (d,) = ctx.saved_tensors
        out = torch.empty_like(d)
        clip_kernel[grid(d)](d, upstream, out, d.numel(), BLOCK=256)
        return out


class ModelNew(nn.Module):
    def forward(self, x, target):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            Clipped.apply(Difference.apply(x, target)).backward()
        return x.grad
