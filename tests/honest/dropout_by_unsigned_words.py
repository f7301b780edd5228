# problem: problems/hashed_dropout.py
# needs: cpu
# odd: a hash in unsigned words of 32 bits that overflow, by a seed that lies in a tensor
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _hash(i, seed):
    h = i.to(tl.uint32) * 2654435761 + seed.to(tl.uint32)
    h = h ^ (h >> 15)
    h = h * 2246822519
    return h ^ (h >> 13)


@triton.jit
def _dropout(x_ptr, seed_ptr, y_ptr, keep_ptr, n, threshold, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    h = _hash(i, tl.load(seed_ptr))
    keep = (h >> 8) >= threshold.to(tl.uint32)
    v = tl.load(x_ptr + i, mask=inside & keep, other=0.0)
    tl.store(y_ptr + i, v * scale, mask=inside)
    tl.store(keep_ptr + i, keep, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.threshold, self.scale = int(p * (1 << 24)), 1.0 / (1.0 - p)

    def forward(self, x, seed):
        x = x.contiguous()
        y, keep = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
        n = x.numel()
        _dropout[(triton.cdiv(n, 1024),)](x, seed, y, keep, n, self.threshold, self.scale, BLOCK=1024)
        return y, keep
