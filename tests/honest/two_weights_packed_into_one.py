# problem: problems/swiglu_of_two.py
# needs: cpu
# odd: w1 and w3 are one parameter of twice the rows in this module, cut in two for the kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, w1_ptr, w3_ptr, h_ptr, M, N, K, sx, sw, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    a1 = tl.zeros((BM, BN), tl.float32)
    a3 = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * sx + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        wm = (rn < N)[None, :] & (rk < K)[:, None]
        a1 += tl.dot(x, tl.load(w1_ptr + rn[None, :] * sw + rk[:, None], mask=wm, other=0.0), input_precision="ieee")
        a3 += tl.dot(x, tl.load(w3_ptr + rn[None, :] * sw + rk[:, None], mask=wm, other=0.0), allow_tf32=False)
    tl.store(
        h_ptr + rm[:, None] * N + rn[None, :], a1 * tl.sigmoid(a1) * a3, mask=(rm < M)[:, None] & (rn < N)[None, :]
    )


@triton.jit
def down_kernel(h_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        h = tl.load(h_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        w = tl.load(w_ptr + rn[None, :] * K + rk[:, None], mask=(rn < N)[None, :] & (rk < K)[:, None], other=0.0)
        acc += tl.dot(h, w, input_precision="ieee")
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        w1 = nn.Linear(features, hidden, bias=False)
        w3 = nn.Linear(features, hidden, bias=False)
        w2 = nn.Linear(hidden, features, bias=False)
        self.w13 = nn.Parameter(torch.cat((w1.weight.data, w3.weight.data)))
        self.w2 = nn.Parameter(w2.weight.data)

    def forward(self, x):
        w1, w3 = self.w13.chunk(2, dim=0)
        M, K = x.shape
        N = w1.shape[0]
        h = torch.empty((M, N), device=x.device, dtype=x.dtype)
        gate_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x, w1, w3, h, M, N, K, x.stride(0), w1.stride(0), BM=32, BN=32, BK=32
        )
        y = torch.empty((M, self.w2.shape[0]), device=x.device, dtype=x.dtype)
        down_kernel[(triton.cdiv(M, 32), triton.cdiv(self.w2.shape[0], 32))](
            h, self.w2, y, M, self.w2.shape[0], N, BM=32, BN=32, BK=32
        )
        return y
