# problem: mish
# needs: cpu
# odd: a noinline device function of numbers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(noinline=True)
def first_of(program, block):
    return program * block


@triton.jit
def mish_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = first_of(tl.program_id(0), BLOCK) + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    e = tl.exp(-2.0 * (tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))))
    tl.store(out_ptr + offsets, x * (1.0 - e) / (1.0 + e), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        mish_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        return out
