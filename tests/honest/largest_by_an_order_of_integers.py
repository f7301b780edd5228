# problem: row_max
# needs: cpu
# odd: floats are compared as whole numbers of the same order, by an atomic maximum over blocks
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(x, order, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    v = tl.where(v != v, float("nan"), v)
    bits = v.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    tl.atomic_max(order + row, tl.max(ordered, axis=0))


@triton.jit
def turn_kernel(order, out, rows, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ordered = tl.load(order + row, mask=row < rows, other=0)
    bits = tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    tl.store(out + row, bits.to(tl.float32, bitcast=True), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        order = torch.full((rows,), -(2**31), dtype=torch.int32, device=x.device)
        out = torch.empty(rows, device=x.device)
        max_kernel[(rows, triton.cdiv(columns, 256))](x, order, columns, BLOCK=256)
        turn_kernel[(triton.cdiv(rows, 128),)](order, out, rows, BLOCK=128)
        return out
