# problem: rope
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, rows, length, half, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr):
    """Rows are (batch, head, position); a row of x is two halves that lie side by side."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.arange(0, BLOCK_H)
    mask = (row[:, None] < rows) & (column[None, :] < half)
    angle = (row % length)[:, None] * half + column[None, :]
    cos = tl.load(cos_ptr + angle, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=mask, other=0.0)
    place = row[:, None] * (2 * half) + column[None, :]
    first = tl.load(x_ptr + place, mask=mask, other=0.0)
    second = tl.load(x_ptr + place + half, mask=mask, other=0.0)
    tl.store(out_ptr + place, first * cos - second * sin, mask=mask)
    tl.store(out_ptr + place + half, second * cos + first * sin, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        batch, heads, length, width = x.shape
        out = torch.empty_like(x)
        rows, half = batch * heads * length, width // 2
        rope_kernel[(triton.cdiv(rows, 16),)](
            x, cos, sin, out, rows, length, half, BLOCK_R=16, BLOCK_H=triton.next_power_of_2(half), num_warps=4
        )
        return out
