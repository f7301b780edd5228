# problem: problems/in_eight_bits.py
# needs: cpu
# odd: outputs of int8 and uint8 from one launch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bytes_kernel(x_ptr, signed_ptr, plain_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    low = tl.minimum(tl.maximum(tl.floor(x * 20.0), -128.0), 127.0)
    tl.store(signed_ptr + offsets, low.to(tl.int8), mask=offsets < n)
    tl.store(plain_ptr + offsets, tl.minimum(tl.abs(x) * 30.0, 255.0).to(tl.uint8), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        signed = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        plain = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
        bytes_kernel[(triton.cdiv(x.numel(), 512),)](x, signed, plain, x.numel(), BLOCK=512)
        return signed, plain
