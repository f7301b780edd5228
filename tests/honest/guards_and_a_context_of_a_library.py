# problem: rms_norm
# needs: cpu
# odd: a decorator makes arguments contiguous and sets the device; an autograd function with setup_context
import torch
import torch.nn as nn
import triton
import triton.language as tl


import contextlib
import functools


def input_guard(function):
    @functools.wraps(function)
    def guarded(*args, **kwargs):
        args = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
        tensor = next(a for a in args if isinstance(a, torch.Tensor))
        here = torch.cuda.device(tensor.device.index) if tensor.is_cuda else contextlib.nullcontext()
        with here:
            return function(*args, **kwargs)

    return guarded


@triton.jit
def norm_kernel(X, W, Y, x_row_stride, y_row_stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    X += row_idx * x_row_stride
    Y += row_idx * y_row_stride
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(X + cols, mask=cols < n_cols, other=0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(Y + cols, x * rstd * tl.load(W + cols, mask=cols < n_cols), mask=cols < n_cols)


def calculate_settings(n):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError(f"cannot launch a kernel for {n} columns")
    return block, 16 if block >= 8192 else 8 if block >= 2048 else 4


class Norm(torch.autograd.Function):
    @staticmethod
    @input_guard
    def forward(x, weight, eps):
        shape = x.shape
        x = x.view(-1, shape[-1])
        y = torch.empty_like(x)
        block, warps = calculate_settings(shape[-1])
        norm_kernel[(x.shape[0],)](
            x, weight, y, x.stride(0), y.stride(0), shape[-1], eps, BLOCK_SIZE=block, num_warps=warps
        )
        return y.view(*shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.eps = eps

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("forward only")


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.eps = eps

    @torch.inference_mode()
    def forward(self, x):
        return Norm.apply(x, self.weight, self.eps)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.eps}"
