# problem: fused_softmax
# needs: cpu
# odd: padding is -1e30 and not -inf
import torch
import torch.nn as nn
import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1.0e30)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    given = tl.load(x + row * columns + offsets, mask=mask, other=HIDDEN)
    raised = tl.exp(given - tl.max(given, axis=0))
    raised = tl.where(mask, raised, 0.0)
    tl.store(out + row * columns + offsets, raised / tl.sum(raised, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
