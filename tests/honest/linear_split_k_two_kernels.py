# problem: problems/linear_with_relu_squared.py
# needs: cpu
# odd: partial products of split K are kept in a scratch buffer, and a second kernel adds them and applies the rest
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@functools.lru_cache(maxsize=None)
def _pick_split(rows: int, width: int, inner: int) -> int:
    tiles = triton.cdiv(rows, 32) * triton.cdiv(width, 32)
    split = 1
    while split < 8 and tiles * split < 128 and inner // (split * 2) >= 32:
        split *= 2
    return split


@triton.jit
def _partial_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cs,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    pid_m, pid_n, pid_k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = pid_k * BLOCK_K + tl.arange(0, BLOCK_K)
    a = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = K - k * BLOCK_K * SPLIT_K
        x = tl.load(a, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        w = tl.load(b, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
        a += BLOCK_K * SPLIT_K * stride_ak
        b += BLOCK_K * SPLIT_K * stride_bk
    c = c_ptr + pid_k * stride_cs + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(c, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def _reduce_kernel(c_ptr, bias_ptr, y_ptr, elements, N, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < elements
    total = tl.load(bias_ptr + i % N, mask=inside, other=0.0)
    for s in tl.static_range(SPLIT_K):
        total += tl.load(c_ptr + s * elements + i, mask=inside, other=0.0)
    total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + i, total * total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.linear = nn.Linear(inner, width)

    def forward(self, x):
        M, K = x.shape
        w = self.linear.weight.t()
        N = w.shape[1]
        split = _pick_split(M, N, K)
        scratch = torch.empty((split, M, N), device=x.device, dtype=torch.float32)
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        _partial_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32), split)](
            x,
            w,
            scratch,
            M,
            N,
            K,
            *x.stride(),
            *w.stride(),
            *scratch.stride(),
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=32,
            SPLIT_K=split,
        )
        _reduce_kernel[(triton.cdiv(M * N, 1024),)](scratch, self.linear.bias, y, M * N, N, SPLIT_K=split, BLOCK=1024)
        return y
