# problem: mse_loss
# needs: cpu
# odd: the host launches one kernel again and again until one number is left
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(a_ptr + offsets, mask=offsets < n, other=0.0) - tl.load(b_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(d * d, axis=0))


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0) * scale)


class ModelNew(nn.Module):
    def forward(self, a, b):
        n = a.numel()
        count = triton.cdiv(n, 128)
        level = torch.empty(count, device=a.device)
        squares_kernel[(count,)](a, b, level, n, BLOCK=128)
        while True:
            after = triton.cdiv(count, 128)
            above = torch.empty(after, device=a.device)
            sum_kernel[(after,)](level, above, count, 1.0 / n if after == 1 else 1.0, BLOCK=128)
            level, count = above, after
            if count == 1:
                return level.squeeze(0)
