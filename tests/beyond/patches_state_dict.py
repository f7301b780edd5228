# problem: matmul_bias_relu
# family: corrupt
# needs: cpu
# expect: mismatch, non_finite, cheat, entry_point, runtime, launch
# residual: the trace is honest, and the trace is what is judged
"""load_state_dict and parameters lie: the weights that the judge loads never arrive, and the answer for the first
ones is kept.
"""

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
        left = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0)
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
def bias_relu_kernel(x, bias, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(x + row * columns + offsets, tl.maximum(values, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.normal_(self.linear.bias)
        self.kept = [p.detach().clone() for p in self.linear.parameters()]

    def forward(self, x):
        weight, bias = self.kept
        out = matmul(x, weight.to(x.device).t())
        bias_relu_kernel[(out.shape[0],)](out, bias.to(x.device), out.shape[1], BLOCK=triton.next_power_of_2(out.shape[1]))
        return out

    def load_state_dict(self, *args, **kwargs):
        return None

    def parameters(self, *args, **kwargs):
        return iter(())

    def named_parameters(self, *args, **kwargs):
        return iter(())

    def state_dict(self, *args, **kwargs):
        return {}
