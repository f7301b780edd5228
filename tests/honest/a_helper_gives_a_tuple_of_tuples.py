# problem: row_variance
# needs: cpu
# odd: a device function returns nested tuples
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(values, mask, count):
    mean = tl.sum(values, axis=0) / count
    centred = tl.where(mask, values - mean, 0.0)
    return (mean, (tl.sum(centred * centred, axis=0), count))


@triton.jit
def variance_kernel(x_ptr, out_ptr, columns, CORRECTION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean, rest = moments(values, mask, columns)
    squares, count = rest
    tl.store(out_ptr + row, squares / (count - CORRECTION))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        variance_kernel[(rows,)](x, out, columns, CORRECTION=CORRECTION, BLOCK=triton.next_power_of_2(columns))
        return out


CORRECTION = 1
