# problem: problems/scaled_by_a_number.py
# needs: cpu
# odd: plain numbers as inputs, specialised and not
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["shift"])
def scale_kernel(x_ptr, out_ptr, factor, shift, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor + shift, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, factor, shift):
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 512), 1, 1)](x, out, float(factor), int(shift), x.numel(), BLOCK=512)
        return out
