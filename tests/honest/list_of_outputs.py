# problem: problems/mean_and_spread.py
# needs: cpu
# odd: the output is a list of two views of one buffer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    d = tl.where(mask, x - mean, 0.0)
    tl.store(out_ptr + row, mean)
    tl.store(out_ptr + rows + row, tl.sqrt_rn(tl.sum(d * d, axis=0) / columns))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((2, rows), device=x.device, dtype=x.dtype)
        moments_kernel[(rows,)](x, out, rows, columns, BLOCK=triton.next_power_of_2(columns))
        mean, spread = out.unbind(0)
        return [mean, spread]
