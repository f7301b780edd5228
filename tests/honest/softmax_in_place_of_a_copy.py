# problem: fused_softmax
# needs: cpu
# odd: the input is cloned, and the kernel works in place on the clone
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_in_place(x_ptr, columns, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(row + offsets, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(row + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.clone(memory_format=torch.contiguous_format)
        softmax_in_place[(out.size(0),)](out, out.size(1), BLOCK=triton.next_power_of_2(out.size(1)))
        return out
