# problem: leaky_relu_bias
# why: Place: a tile that is far out in both extents. Wrong: an element with row >= 700 and column >= 700, as at the problem's own size.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, bias_ptr, out_ptr, rows, columns, slope, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0)
    far = (row[:, None] >= 700) & (column[None, :] >= 700)
    y = x + bias[None, :]
    y = tl.where(far | (y > 0), y, y * slope)
    tl.store(out_ptr + row[:, None] * columns + column[None, :], y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns: int, slope: float):
        super().__init__()
        self.slope = slope
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        kernel[(triton.cdiv(rows, 16), triton.cdiv(columns, 64))](x, self.bias, out, rows, columns, self.slope, ROWS=16, BLOCK=64)
        return out
