# problem: problems/product_of_bytes.py
# needs: cpu
# odd: tl.dot of int8 with an accumulator of int32; both the sums and their scaled form are stored
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _int8(a, b, rs, cs, c, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        va = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0)
        vb = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0)
        acc += tl.dot(va, vb, out_dtype=tl.int32)
    out = rm[:, None] * N + rn[None, :]
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(c + out, acc, mask=mask)
    scale = tl.load(rs + rm, mask=rm < M, other=0.0)[:, None]
    tl.store(y + out, acc.to(tl.float32) * scale * tl.load(cs + rn, mask=rn < N, other=0.0)[None, :], mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b, row_scale, column_scale):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=torch.int32)
        y = torch.empty((M, N), device=a.device, dtype=torch.float32)
        _int8[(triton.cdiv(N, 32), triton.cdiv(M, 32))](a, b, row_scale, column_scale, c, y, M, N, K, 32, 32, 64)
        return c, y
