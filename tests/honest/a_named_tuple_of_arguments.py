# problem: binary_chain
# needs: cpu
# odd: the kernel takes a NamedTuple of pointers and numbers
from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Operands(NamedTuple):
    x: object
    y: object
    z: object
    count: int


@triton.jit
def chain_kernel(given, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < given.count
    z = tl.load(given.z + offsets, mask=mask, other=0.0)
    value = (tl.load(given.x + offsets, mask=mask) * tl.load(given.y + offsets, mask=mask) + z) / (1.0 + tl.abs(z))
    tl.store(out_ptr + offsets, value, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y, z):
        out = torch.empty_like(x)
        chain_kernel[(triton.cdiv(x.numel(), 1024),)](Operands(x, y, z, x.numel()), out, BLOCK=1024)
        return out
