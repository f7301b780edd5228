# problem: problems/two_parts_of_one.py
# needs: cpu
# odd: both outputs are views into one buffer, beside each other and not over each other
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_kernel(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(y + o, 2 * tl.sigmoid(2 * v) - 1, mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        tanh_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), BLOCK=1024)
        return torch.split(y, (y.shape[1] + 1) // 2, dim=1)
