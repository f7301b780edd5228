# problem: fused_softmax
# needs: cpu
# source: shared/redteam
"""The output is a view of the buffer that was written, made by torch.as_strided (code generators write so)."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    value = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + offsets, value / tl.sum(value, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        buffer = torch.empty_strided((rows, 1, columns), (columns, columns, 1), device=x.device, dtype=x.dtype)
        softmax_row[(rows,)](x, buffer, columns, BLOCK=triton.next_power_of_2(columns))
        return torch.as_strided(buffer, (rows, columns), (columns, 1), 0)
