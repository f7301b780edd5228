# problem: matmul
# needs: cpu
# odd: computes the transposed product and returns a transposed view
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, K, B):
        ks = start + tl.arange(0, B)
        left = tl.load(
            a + rows[:, None] * sam + ks[None, :] * sak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0
        )
        right = tl.load(
            b + ks[:, None] * sbk + columns[None, :] * sbn, mask=(ks[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + rows[:, None] * scm + columns[None, :] * scn, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
        at, bt, ot = a.t(), b.t(), out.t()
        grid = (triton.cdiv(n, 32), triton.cdiv(m, 32))
        product_kernel[grid](bt, at, ot, n, m, k, *bt.stride(), *at.stride(), *ot.stride(), B=32)
        return ot.t()
