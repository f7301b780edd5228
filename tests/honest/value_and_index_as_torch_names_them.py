# problem: problems/max_with_indices.py
# needs: cpu
# odd: the output is torch.return_types.max's pair, here a namedtuple of the module's own
from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Largest(NamedTuple):
    values: torch.Tensor
    indices: torch.Tensor


@triton.jit
def max_kernel(x_ptr, values_ptr, indices_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(values_ptr + row, value)
    tl.store(indices_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x) -> Largest:
        values = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        indices = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        max_kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return Largest(values, indices)
