# problem: problems/larger_than_its_column.py
# needs: cpu
# odd: the row's threshold by a remainder
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def value_kernel(x, y, out, total, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    v = tl.load(x + offsets, mask=mask, other=1.0)
    r = v > tl.load(y + offsets % columns, mask=mask, other=0.0)
    tl.store(out + offsets, r, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        value_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), x.shape[1], BLOCK=512)
        return out
