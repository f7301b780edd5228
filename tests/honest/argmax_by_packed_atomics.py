# problem: row_argmax
# needs: cpu
# odd: value and index packed into one int64, blocks meet in atomic_max
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pack_kernel(x_ptr, best_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf")) + 0.0
    bits = x.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    packed = (ordered << 32) | (0x7FFFFFFF - offsets).to(tl.int64)
    lowest = tl.full((BLOCK,), -9223372036854775808, dtype=tl.int64)
    tl.atomic_max(best_ptr + row, tl.max(tl.where(mask, packed, lowest), axis=0))


@triton.jit
def unpack_kernel(best_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < rows
    best = tl.load(best_ptr + offsets, mask=mask, other=0)
    tl.store(out_ptr + offsets, 0x7FFFFFFF - (best & 0x7FFFFFFF), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        best = torch.full((rows,), torch.iinfo(torch.int64).min, device=x.device, dtype=torch.int64)
        out = torch.empty_like(best)
        pack_kernel[(rows, triton.cdiv(columns, 64))](x, best, columns, BLOCK=64)
        unpack_kernel[(triton.cdiv(rows, 256),)](best, out, rows, BLOCK=256)
        return out
