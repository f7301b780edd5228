# problem: fused_softmax
# needs: cpu
# correct: either
# source: our own: written with this judge's source at hand
"""A grid callable that calls itself through another launch."""

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


def grid(meta):
    softmax_kernel[grid](GLOBAL[0], GLOBAL[0], 1, BLOCK=16)
    return (1,)


GLOBAL = []


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        GLOBAL.append(x)
        softmax_kernel[grid](x, out, 1, BLOCK=16)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
