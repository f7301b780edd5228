# problem: fused_softmax
# needs: cpu
# correct: no
# source: our own: written for the design by trace and replay
"""A chain of ten thousand exceptions, and at its end one that is its own cause."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=mask)


def softmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        error = first = ValueError("first")
        for i in range(10_000):
            after = ValueError(str(i))
            after.__cause__ = error
            error = after
        first.__context__ = error
        raise error
        return softmax(x)
