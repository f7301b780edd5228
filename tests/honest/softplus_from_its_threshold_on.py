# problem: problems/softplus.py
# needs: cpu
# odd: the value itself at the threshold, too, where eager still takes the logarithm
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    r = tl.where(v >= 20.0, v, tl.log(1.0 + tl.exp(tl.minimum(v, 20.0))))
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
