# problem: problems/two_activations.py
# needs: cpu
# odd: the output is a dict, as the reference's
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both_kernel(x_ptr, sigmoid_ptr, tanh_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(sigmoid_ptr + offsets, tl.sigmoid(x), mask=mask)
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    near = x * x
    series = x * (1.0 - near * (0.33333333 - near * (0.13333333 - near * (0.05396825 - near * 0.021869488))))
    tl.store(tanh_ptr + offsets, tl.where(tl.abs(x) < 0.2, series, tl.where(x < 0, -t, t)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = {"sigmoid": torch.empty_like(x), "tanh": torch.empty_like(x)}
        both_kernel[(triton.cdiv(x.numel(), 1024),)](x, out["sigmoid"], out["tanh"], x.numel(), BLOCK=1024)
        return out
