# problem: leaky_relu_bias
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_leaky_relu_kernel(x_ptr, bias_ptr, out_ptr, columns, slope, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask) + tl.load(bias_ptr + offsets, mask=mask)
    tl.store(out_ptr + row * columns + offsets, tl.where(x > 0, x, x * slope), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns: int, slope: float):
        super().__init__()
        self.slope = slope
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        grid = (rows, triton.cdiv(columns, 1024))
        bias_leaky_relu_kernel[grid](x, self.bias, out, columns, self.slope, BLOCK=1024)
        return out
