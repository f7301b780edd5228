# problem: matmul_fp16
# why: The operands of the fp16 product lose two of their eleven bits: 513 counts as 512.
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rk = start + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * sam + rk[None, :] * sak, mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        w = tl.load(b + rk[:, None] * sbk + rn[None, :] * sbn, mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        x = ((x.to(tl.int16, bitcast=True) + 2) & -4).to(tl.float16, bitcast=True)
        w = ((w.to(tl.int16, bitcast=True) + 2) & -4).to(tl.float16, bitcast=True)
        acc = tl.dot(x, w, acc, input_precision="ieee")

    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=32, BN=32, BK=32)
        return c
