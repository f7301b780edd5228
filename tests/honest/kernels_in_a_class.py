# problem: fused_silu
# needs: cpu
# odd: the kernel is a static method of a class, the launch a class method
import torch
import torch.nn as nn
import triton
import triton.language as tl


class Silu:
    BLOCK = 512

    @staticmethod
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=mask)

    @classmethod
    def launch(cls, x, out):
        cls.kernel[(triton.cdiv(x.numel(), cls.BLOCK),)](x, out, x.numel(), BLOCK=cls.BLOCK)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        Silu.launch(x, out)
        return out
