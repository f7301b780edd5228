# problem: row_sum
# needs: cpu
# odd: Kahan's sum: the rounding of each addition is carried along
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    lost = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + o, mask=o < columns, other=0.0)
        y = v - lost
        t = total + y
        finite = tl.abs(t) < float("inf")
        lost = tl.where(finite, (t - total) - y, 0.0)
        total = t
    tl.store(out + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        sum_kernel[(out.numel(),)](x, out, x.shape[-1], BLOCK=128)
        return out
