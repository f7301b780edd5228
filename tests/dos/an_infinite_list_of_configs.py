# problem: fused_softmax
# needs: cpu
# correct: either
# source: our own: written with this judge's source at hand
"""A list of configurations that grows while it is read."""

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


class Endless(list):
    def __iter__(self):
        while True:
            yield triton.Config({}, num_warps=4)

    def __len__(self):
        return 1 << 60


tuned = triton.autotune(configs=Endless([triton.Config({})]), key=["columns"])(softmax_kernel)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        tuned[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
