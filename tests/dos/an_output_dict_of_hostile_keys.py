# problem: fused_softmax
# needs: cpu
# correct: either
# source: our own: written with this judge's source at hand
"""A dict of outputs whose keys hash and print with side effects and never end."""

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


class Key:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        return True

    def __str__(self):
        return "k" * (1 << 31)

    __repr__ = __str__

    def __lt__(self, other):
        raise MemoryError


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return {Key(): out}
