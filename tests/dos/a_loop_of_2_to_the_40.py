# problem: fused_softmax
# needs: cpu
# correct: either
# source: our own: written for the design by trace and replay
"""A loop of 2**40 turns that does nothing: the compiler may take it out, an interpreter may not."""

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
    turns = columns.to(tl.int64) * 0 + (1 << 40)
    total = 0.0
    for i in range(turns):
        total += 0.0
    values = values + total
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
