# problem: problems/standardized_by_all.py
# needs: cpu
# odd: moments of each block in a scratch, combined by Chan's formula in one program, then a launch over all elements
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _block_moments(x_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x_ptr + i, mask=inside, other=0.0).to(tl.float32)
    count = tl.sum(inside.to(tl.float32), axis=0)
    mean = tl.sum(v, axis=0) / count
    d = tl.where(inside, v - mean, 0.0)
    tl.store(scratch_ptr + 3 * pid, count)
    tl.store(scratch_ptr + 3 * pid + 1, mean)
    tl.store(scratch_ptr + 3 * pid + 2, tl.sum(d * d, axis=0))


@triton.jit
def _combine(n_a, mean_a, m2_a, n_b, mean_b, m2_b):
    n = n_a + n_b
    d = mean_b - mean_a
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return n, mean_a + d * share, m2_a + m2_b + d * d * n_a * share


@triton.jit
def _all_moments(scratch_ptr, result_ptr, blocks, eps, BLOCK: tl.constexpr):
    n = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, blocks, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < blocks
        nb = tl.load(scratch_ptr + 3 * i, mask=mask, other=0.0)
        mb = tl.load(scratch_ptr + 3 * i + 1, mask=mask, other=0.0)
        qb = tl.load(scratch_ptr + 3 * i + 2, mask=mask, other=0.0)
        mb = tl.where(mask, mb, mean)
        n, mean, m2 = _combine(n, mean, m2, nb, mb, qb)
    n, mean, m2 = tl.reduce((n, mean, m2), 0, _combine)
    tl.store(result_ptr, mean)
    tl.store(result_ptr + 1, tl.rsqrt(m2 / n + eps))


@triton.jit
def _apply(x_ptr, result_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, (v - tl.load(result_ptr)) * tl.load(result_ptr + 1), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, BLOCK = x.numel(), 1024
        blocks = triton.cdiv(n, BLOCK)
        scratch = x.new_empty(blocks, 3, dtype=torch.float32)
        result = x.new_empty(2, dtype=torch.float32)
        y = torch.empty_like(x)
        _block_moments[(blocks,)](x, scratch, n, BLOCK=BLOCK)
        _all_moments[(1,)](scratch, result, blocks, 1e-5, BLOCK=256, num_warps=8)
        _apply[(blocks,)](x, result, y, n, BLOCK=BLOCK)
        return y
