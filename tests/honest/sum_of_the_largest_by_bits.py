# problem: problems/sum_of_the_largest.py
# needs: cpu
# odd: the k-th largest is found bit by bit in an order-preserving unsigned word
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _ordered(x):
    bits = x.to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) != 0, ~bits, bits | 0x80000000)


@triton.jit
def _back(word):
    return tl.where((word >> 31) != 0, word & 0x7FFFFFFF, ~word).to(tl.float32, bitcast=True)


@triton.jit
def _kth(x_ptr, out_ptr, columns, stride, k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * stride + c, mask=c < columns, other=float("-inf"))
    word = tl.where(c < columns, _ordered(v), 0)
    found = tl.full((), 0, tl.uint32)
    for bit in tl.static_range(31, -1, -1):
        trial = found | (1 << bit)
        enough = tl.sum((word >= trial).to(tl.int32), axis=0) >= k
        found = tl.where(enough, trial, found).to(tl.uint32)
    above = word > found
    count = tl.sum(above.to(tl.int32), axis=0)
    total = tl.sum(tl.where(above, v, 0.0), axis=0)
    ties = k - count
    tl.store(out_ptr + row, tl.where(ties > 0, total + ties.to(tl.float32) * _back(found), total))


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(columns)
        warps = 4 if block <= 1024 else 8 if block <= 4096 else 16
        _kth[(rows,)](x, out, columns, x.stride(0), self.k, BLOCK=block, num_warps=warps)
        return out
