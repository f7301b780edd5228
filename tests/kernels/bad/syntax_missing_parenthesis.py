# problem: row_sum
# fault: syntax
# line: 12
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    total = tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < columns, other=0.0)
    tl.store(out_ptr, total)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0],), device=x.device)
        row_sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out
