# problem: row_variance
# needs: cpu
# odd: annotations as texts, a docstring, comments in other scripts, type hints of tensors
from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def variance_kernel(x_ptr: "*fp32", out_ptr: "*fp32", columns: "i32", BLOCK: tl.constexpr):
    """Две проходки / 两遍: the mean, then the squares about it."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    μ = tl.sum(x, axis=0) / columns  # Greek letters are letters
    d = tl.where(mask, x - μ, 0.0)
    tl.store(out_ptr + row, tl.sum(d * d, axis=0) / (columns - 1))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        variance_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
