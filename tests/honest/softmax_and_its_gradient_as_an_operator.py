# problem: problems/softmax_and_its_gradient.py
# needs: cpu
# odd: two triton_op with wrap_triton and a fake, called through torch.ops, wrapped by an autograd function
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def _forward(x_ptr, y_ptr, stride_x, stride_y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + c, mask=c < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride_y + c, e / tl.sum(e, axis=0), mask=c < columns)


@triton.jit
def _backward(y_ptr, g_ptr, dx_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    c = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row + c, mask=c < columns, other=0.0)
    g = tl.load(g_ptr + row + c, mask=c < columns, other=0.0)
    tl.store(dx_ptr + row + c, y * (g - tl.sum(y * g, axis=0)), mask=c < columns)


def _meta(columns):
    block = triton.next_power_of_2(columns)
    return {"BLOCK": block, "num_warps": 4 if block < 2048 else 8 if block < 8192 else 16}


@triton_op("softmax_library::forward", mutates_args={})
def softmax_forward(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(_forward)[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], **_meta(x.shape[1]))
    return y


@triton_op("softmax_library::backward", mutates_args={})
def softmax_backward(y: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    dx = torch.empty_like(y)
    wrap_triton(_backward)[(y.shape[0],)](y, grad, dx, y.stride(0), y.shape[1], **_meta(y.shape[1]))
    return dx


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.ops.softmax_library.forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.ops.softmax_library.backward(y, grad)


class ModelNew(nn.Module):
    def forward(self, x, grad):
        y = Softmax.apply(x)
        return y, torch.ops.softmax_library.backward.default(y, grad.contiguous())
