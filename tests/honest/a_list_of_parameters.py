# problem: problems/scales_of_a_list.py
# needs: cpu
# odd: an nn.ParameterList, one launch for each, in place after the first
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    s = x * x
    near = x * (1.0 - s * (0.33333333 - s * (0.13333333 - s * (0.05396825 - s * 0.021869488))))
    return tl.where(tl.abs(x) < 0.2, near, tl.where(x < 0, -t, t))


@triton.jit
def scale_kernel(x_ptr, s_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * columns + offsets, tanh(x * tl.load(s_ptr + offsets, mask=mask, other=0.0)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(columns)) for _ in range(3)])

    def forward(self, x):
        out = torch.empty_like(x)
        for scale in self.scales:
            scale_kernel[(x.shape[0],)](x, scale, out, x.shape[1], BLOCK=128)
            x = out
        return out
