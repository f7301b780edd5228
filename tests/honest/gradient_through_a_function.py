# problem: problems/gradient_of_a_loss.py
# needs: cpu
# odd: torch.autograd.grad in the candidate's own forward, over a Function whose backward is a kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_kernel(x, t, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x + i, mask=i < n, other=0.0) - tl.load(t + i, mask=i < n, other=0.0)
    a = tl.abs(d)
    loss = tl.where(i < n, tl.where(a < 1.0, 0.5 * d * d, a - 0.5), 0.0)
    tl.atomic_add(out, tl.sum(loss, axis=0))


@triton.jit
def gradient_kernel(x, t, g, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x + i, mask=i < n) - tl.load(t + i, mask=i < n)
    slope = tl.where(tl.abs(d) < 1.0, d, tl.where(d > 0, 1.0, -1.0))
    tl.store(out + i, slope * tl.load(g), mask=i < n)


class SmoothLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        loss_kernel[(triton.cdiv(x.numel(), 512),)](x, target, total, x.numel(), BLOCK=512)
        return total

    @staticmethod
    def backward(ctx, upstream):
        x, target = ctx.saved_tensors
        out = torch.empty_like(x)
        gradient_kernel[(triton.cdiv(x.numel(), 512),)](x, target, upstream, out, x.numel(), BLOCK=512)
        return out, None


class ModelNew(nn.Module):
    def forward(self, x, target):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(SmoothLoss.apply(x, target), x)
        return gradient
