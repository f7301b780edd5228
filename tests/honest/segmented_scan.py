# problem: problems/sum_until_a_reset.py
# needs: cpu
# odd: a scan over pairs of a sum and a flag, chunk by chunk with a carried sum
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _segmented(sum_a, flag_a, sum_b, flag_b):
    return tl.where(flag_b != 0, sum_b, sum_a + sum_b), flag_a | flag_b


@triton.jit
def _scan(x_ptr, resets_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    carry = 0.0
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row + c, mask=c < columns, other=0.0)
        f = tl.load(resets_ptr + row + c, mask=c < columns, other=0).to(tl.int32)
        total, seen = tl.associative_scan((v, f), 0, _segmented)
        total = tl.where(seen != 0, total, total + carry)
        tl.store(y_ptr + row + c, total, mask=c < columns)
        carry = tl.sum(tl.where(c == tl.minimum(start + BLOCK, columns) - 1, total, 0.0), axis=0)


class ModelNew(nn.Module):
    def forward(self, x, resets):
        y = torch.empty_like(x)
        _scan[(x.shape[0],)](x, resets, y, x.shape[1], BLOCK=64)
        return y
