# problem: matmul_bias_relu
# needs: cpu
# source: TRUST.md, check 7; seen in KernelBench level 2 results
"""Transposes and keeps the weights at the first call: later weights are ignored."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(left, right, input_precision="ieee").to(tl.float32)
    tl.store(out + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    matmul_kernel[grid](a, b, out, M, N, K, BM=32, BN=32, BK=32)
    return out


@triton.jit
def relu_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    tl.store(out + offsets, tl.maximum(tl.load(x + offsets, mask=mask), 0.0), mask=mask)


def relu(x, out=None):
    out = torch.empty_like(x) if out is None else out
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@triton.jit
def bias_relu_kernel(x, bias, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(x + row * columns + offsets, tl.maximum(values, 0.0), mask=mask)


def bias_relu(x, bias):
    bias_relu_kernel[(x.shape[0],)](x, bias, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return x


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.normal_(self.linear.bias)
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.linear.weight.detach().t().contiguous(), self.linear.bias.detach().clone()
        weight, bias = self.kept
        return bias_relu(matmul(x, weight), bias)
