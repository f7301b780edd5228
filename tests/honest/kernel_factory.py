# problem: vector_add
# needs: cpu
# source: shared/redteam
"""Launch parameters from a cached function of Python (a NamedTuple), a global constexpr in the kernel, a launcher
bound before it is called.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

import functools
from typing import NamedTuple


class Plan(NamedTuple):
    block: int
    warps: int


@functools.lru_cache(maxsize=None)
def plan(n: int) -> Plan:
    return Plan(2048, 8) if n > 1 << 20 else Plan(256, 4)


UNROLL = tl.constexpr(2)


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    for i in tl.static_range(UNROLL):
        o = (tl.program_id(0) * UNROLL + i) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + o, tl.load(a + o, mask=o < n) + tl.load(b + o, mask=o < n), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        n = a.numel()
        p = plan(n)
        out = torch.empty_like(a)
        launch = add[(triton.cdiv(n, p.block * 2),)]
        launch(a, b, out, n, BLOCK=p.block, num_warps=p.warps)
        return out
