# problem: problems/ordered_outputs.py
# needs: cpu
# odd: the outputs lie in an OrderedDict, as the reference's
from collections import OrderedDict

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_kernel(x_ptr, low_ptr, high_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(low_ptr + offsets, tl.minimum(x, 0.0), mask=offsets < n)
    tl.store(high_ptr + offsets, tl.maximum(x, 0.0), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        low, high = torch.empty_like(x), torch.empty_like(x)
        split_kernel[(triton.cdiv(x.numel(), 512),)](x, low, high, x.numel(), BLOCK=512)
        return OrderedDict(low=low, high=high)
