# problem: problems/turned_by_an_angle.py
# needs: cpu
# odd: a complex output, written through its view as real numbers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y = tl.load(y_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + 2 * offsets, -y, mask=offsets < n)
    tl.store(out_ptr + 2 * offsets + 1, x, mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, dtype=torch.complex64, device=x.device)
        turn_kernel[(triton.cdiv(x.numel(), 512),)](x, y, torch.view_as_real(out), x.numel(), BLOCK=512)
        return out
