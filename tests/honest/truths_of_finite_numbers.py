# problem: problems/finite_numbers.py
# needs: cpu
# odd: most outputs hold True everywhere, as memory does that nobody has set
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finite_kernel(x_ptr, out_ptr, elements, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.abs(x) < float("inf"), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape, device=x.device, dtype=torch.bool)
        finite_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
