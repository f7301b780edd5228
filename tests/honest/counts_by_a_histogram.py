# problem: problems/counts_of_values.py
# needs: cpu
# odd: tl.histogram in each block, atomics on int64 counts
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count_kernel(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0).to(tl.int32)
    counts = tl.histogram(x, BINS)
    bins = tl.arange(0, BINS)
    missing = tl.sum((~mask).to(tl.int32), axis=0)
    counts = counts - tl.where(bins == 0, missing, 0)
    tl.atomic_add(out_ptr + bins, counts.to(tl.int64), mask=counts > 0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(256, device=x.device, dtype=torch.int64)
        count_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BINS=256, BLOCK=1024)
        return out
