# problem: fused_silu
# needs: cpu
# odd: coefficients in a tensor that the host makes from a list, and a range of offsets
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, table_ptr, order_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block = tl.load(order_ptr + tl.program_id(0))
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    one, minus = tl.load(table_ptr), tl.load(table_ptr + 1)
    tl.store(out_ptr + offsets, x / (one + tl.exp(minus * x)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        blocks = triton.cdiv(x.numel(), 1024)
        if self.table is None:
            self.table = torch.tensor([1.0, -1.0], dtype=torch.float32, device=x.device)
        order = torch.arange(blocks - 1, -1, -1, dtype=torch.int32, device=x.device)
        out = torch.empty_like(x)
        silu_kernel[(blocks,)](x, self.table, order, out, x.numel(), BLOCK=1024)
        return out
