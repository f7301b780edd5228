# problem: problems/counts_in_equal_bins.py
# needs: cpu
# odd: every program has a histogram of its own in a scratch of a fixed number of parts, which a second launch adds
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _parts(x_ptr, parts_ptr, n, bins, scale, BINS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    counts = tl.zeros((BINS,), tl.int32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + i, mask=i < n, other=0.0)
        place = tl.floor((v + 4.0) * scale)
        place = tl.minimum(tl.maximum(place, 0.0), (bins - 1).to(tl.float32)).to(tl.int32)
        counts += tl.histogram(place, BINS, mask=i < n)
    tl.store(parts_ptr + pid * BINS + tl.arange(0, BINS), counts)


@triton.jit
def _add(parts_ptr, counts_ptr, shares_ptr, parts, n, bins, BINS: tl.constexpr):
    b = tl.arange(0, BINS)
    total = tl.zeros((BINS,), tl.int64)
    for p in range(parts):
        total += tl.load(parts_ptr + p * BINS + b)
    tl.store(counts_ptr + b, total, mask=b < bins)
    tl.store(shares_ptr + b, total.to(tl.float32) / n.to(tl.float32), mask=b < bins)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        n, bins = x.numel(), self.bins
        BINS, programs = triton.next_power_of_2(bins), min(32, triton.cdiv(n, 256))
        parts = torch.empty(programs, BINS, device=x.device, dtype=torch.int32)
        counts = torch.empty(bins, device=x.device, dtype=torch.int64)
        shares = torch.empty(bins, device=x.device)
        _parts[(programs,)](x, parts, n, bins, bins / 8.0, BINS=BINS, BLOCK=256)
        _add[(1,)](parts, counts, shares, programs, n, bins, BINS=BINS)
        return counts, shares
