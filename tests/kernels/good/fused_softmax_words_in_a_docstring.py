# problem: fused_softmax
# odd: a docstring with words that a search would take for torch's work
"""Softmax in a single pass over each row.

No fallback here: where torch.softmax or F.softmax would try several kernels, we pass each row through registers once.
We try nothing, except what is written below; torch.exp and x.sum() appear in this text and nowhere else.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: F401  left over from the reference
import triton
import triton.language as tl


@triton.jit
def softmax_single_pass_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """ROWS rows a program as one two-dimensional tile, a single pass (try/except free)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    places = row[:, None] * columns + column[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=1)
    top = tl.where(row < rows, top, 0.0)
    numerator = tl.exp(x - top[:, None])
    total = tl.where(row < rows, tl.sum(numerator, axis=1), 1.0)
    tl.store(out_ptr + places, (numerator / total[:, None]).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    """Like torch.softmax(x, dim=-1), but ours."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        per_program = max(1, 2048 // block)
        grid = (triton.cdiv(rows, per_program),)
        softmax_single_pass_kernel[grid](x, out, rows, columns, BLOCK=block, ROWS=per_program, num_warps=8)
        return out
