# problem: fused_gelu
# needs: cpu
# odd: sizes in a frozen dataclass, a way in an IntEnum, a cached property
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Way(IntEnum):
    EXACT = 0
    TANH = 1


@dataclass(frozen=True)
class Plan:
    block: int = 1024
    warps: int = 4


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, WAY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    if WAY == 0:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x * tl.sigmoid(2.0 * u)
    tl.store(out_ptr + offsets, y, mask=offsets < n)


class ModelNew(nn.Module):
    @cached_property
    def plan(self):
        return Plan()

    def forward(self, x):
        out = torch.empty_like(x)
        plan = self.plan
        grid = (triton.cdiv(x.numel(), plan.block),)
        gelu_kernel[grid](x, out, x.numel(), WAY=int(Way.TANH), BLOCK=plan.block, num_warps=plan.warps)
        return out
