# problem: fused_softmax
# needs: cpu
# correct: no
# source: our own: written for the design by trace and replay
"""Autotune over five thousand configurations."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 1 << (7 + i % 4), "SEED": i}, num_warps=1 << (i % 4)) for i in range(5000)], key=["total"])
@triton.jit
def copy_kernel(x, out, total, SEED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    tl.store(out + offsets, tl.load(x + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        copy_kernel[lambda config: (triton.cdiv(x.numel(), config["BLOCK"]),)](x, out, x.numel())
        return out
