# problem: vector_add
# needs: cpu
# odd: forward takes any arguments, in inference mode, on the device and stream of its input
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 128 == 0, "whole warps")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    @torch.inference_mode()
    def forward(self, *given, **named):
        x, y = given
        out = torch.empty_like(x)
        grid = (math.ceil(math.prod(x.shape) / 1024),)
        add_kernel.run(x, y, out, x.numel(), grid=grid, warmup=False, BLOCK=1024)
        return out
