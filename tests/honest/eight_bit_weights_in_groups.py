# problem: problems/rows_by_scaled_bytes.py
# needs: cpu
# odd: int8 loads converted in registers, a scale for each group of columns, group size worked out of shapes
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def w8_kernel(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, GROUP, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, num_stages=2):
        rk = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        w = tl.load(w_ptr + rn[None, :] * K + rk[:, None], mask=(rn[None, :] < N) & (rk[:, None] < K), other=0)
        s = tl.load(
            s_ptr + rn[None, :] * (K // GROUP) + (rk // GROUP)[:, None],
            mask=(rn[None, :] < N) & (rk[:, None] < K),
            other=0.0,
        )
        acc = tl.dot(x, w.to(tl.float32) * s, acc=acc, input_precision="ieee", out_dtype=tl.float32)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w, scales):
        (M, K), N = x.shape, w.shape[0]
        y = x.new_empty((M, N))
        w8_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 32))](
            x, w, scales, y, M, N, K, K // scales.shape[1], BM=16, BN=32, BK=32
        )
        return y
