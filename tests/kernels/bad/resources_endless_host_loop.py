# problem: vector_add
# fault: resources
# a trace is bounded in its steps, so the loop ends before its time does
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(a_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        done = 0
        while done < a.numel():
            add_kernel[(1,)](a, b, out, done, a.numel(), BLOCK=1024)
            # done never grows
        return out
