# problem: problems/copysign_of_one.py
# needs: cpu
# odd: the sign is taken from the bits
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sign_kernel(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(x + o, mask=o < n).to(tl.uint32, bitcast=True)
    tl.store(y + o, ((b & 0x80000000) | 0x3F800000).to(tl.float32, bitcast=True), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        sign_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
