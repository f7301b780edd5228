# problem: fused_softmax
# needs: cpu
# odd: exponentials are powers of two of what is scaled by log2(e), with a reciprocal at the end
import torch
import torch.nn as nn
import triton
import triton.language as tl


LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    top = tl.max(values, axis=0)
    powers = tl.exp2((values - top) * LOG2E)
    tl.store(out + row * columns + i, powers * (1.0 / tl.sum(powers, axis=0)), mask=i < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
