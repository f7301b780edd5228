# problem: problems/quantized_as_a_whole.py
# needs: cpu
# odd: the largest magnitude by atomic_max of the bits of floats that are not negative, then one launch for the rest
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _largest(x_ptr, most_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.abs(tl.load(x_ptr + i, mask=i < n, other=0.0))
    tl.atomic_max(most_ptr, tl.max(v, axis=0))


@triton.jit
def _quantize(x_ptr, most_ptr, q_ptr, scale_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    scale = tl.load(most_ptr) / 127.0
    if row == 0:
        tl.store(scale_ptr, scale)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0)
        q = libdevice.rint(tl.div_rn(v, scale))
        q = tl.minimum(tl.maximum(q, -127.0), 127.0).to(tl.int8)
        tl.store(q_ptr + row * columns + c, q, mask=c < columns)
        total += tl.where(c < columns, q.to(tl.int32), 0)
    tl.store(sums_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        most = torch.zeros(1, device=x.device, dtype=torch.float32)
        q = torch.empty_like(x, dtype=torch.int8)
        scale = torch.empty((), device=x.device, dtype=x.dtype)
        sums = torch.empty(rows, device=x.device, dtype=torch.int32)
        _largest[(triton.cdiv(x.numel(), 1024),)](x, most, x.numel(), BLOCK=1024)
        _quantize[(rows,)](x, most, q, scale, sums, columns, BLOCK=512)
        return q, scale, sums
