# problem: fused_bias_gelu
# fault: mismatch
# pattern: last_block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """The bias is read under a mask that is one short: the last column goes without."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask)
    x += tl.load(bias_ptr + offsets, mask=offsets < columns - 1, other=0.0)
    out = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + row * columns + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        bias_gelu_kernel[(rows, triton.cdiv(columns, 1024))](x, self.bias, out, columns, BLOCK=1024)
        return out
