# problem: fused_softmax
# needs: cpu
# correct: either
# source: our own: written for the design by trace and replay
"""Thirty device functions, each of which calls the next twice: a thousand million calls when they are written out."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def f0(v):
    return f1(v) + f1(v) * 0.0


@triton.jit
def f1(v):
    return f2(v) + f2(v) * 0.0


@triton.jit
def f2(v):
    return f3(v) + f3(v) * 0.0


@triton.jit
def f3(v):
    return f4(v) + f4(v) * 0.0


@triton.jit
def f4(v):
    return f5(v) + f5(v) * 0.0


@triton.jit
def f5(v):
    return f6(v) + f6(v) * 0.0


@triton.jit
def f6(v):
    return f7(v) + f7(v) * 0.0


@triton.jit
def f7(v):
    return f8(v) + f8(v) * 0.0


@triton.jit
def f8(v):
    return f9(v) + f9(v) * 0.0


@triton.jit
def f9(v):
    return f10(v) + f10(v) * 0.0


@triton.jit
def f10(v):
    return f11(v) + f11(v) * 0.0


@triton.jit
def f11(v):
    return f12(v) + f12(v) * 0.0


@triton.jit
def f12(v):
    return f13(v) + f13(v) * 0.0


@triton.jit
def f13(v):
    return f14(v) + f14(v) * 0.0


@triton.jit
def f14(v):
    return f15(v) + f15(v) * 0.0


@triton.jit
def f15(v):
    return f16(v) + f16(v) * 0.0


@triton.jit
def f16(v):
    return f17(v) + f17(v) * 0.0


@triton.jit
def f17(v):
    return f18(v) + f18(v) * 0.0


@triton.jit
def f18(v):
    return f19(v) + f19(v) * 0.0


@triton.jit
def f19(v):
    return f20(v) + f20(v) * 0.0


@triton.jit
def f20(v):
    return f21(v) + f21(v) * 0.0


@triton.jit
def f21(v):
    return f22(v) + f22(v) * 0.0


@triton.jit
def f22(v):
    return f23(v) + f23(v) * 0.0


@triton.jit
def f23(v):
    return f24(v) + f24(v) * 0.0


@triton.jit
def f24(v):
    return f25(v) + f25(v) * 0.0


@triton.jit
def f25(v):
    return f26(v) + f26(v) * 0.0


@triton.jit
def f26(v):
    return f27(v) + f27(v) * 0.0


@triton.jit
def f27(v):
    return f28(v) + f28(v) * 0.0


@triton.jit
def f28(v):
    return f29(v) + f29(v) * 0.0


@triton.jit
def f29(v):
    return f30(v) + f30(v) * 0.0


@triton.jit
def f30(v):
    return v


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf"))
    values = f0(values)
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
