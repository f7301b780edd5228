# problem: batched_matmul
# needs: cpu
# odd: a grid of one dimension that is taken apart by divisions, batches last
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, c, batches, M, N, K, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    batch = number % batches
    tile = number // batches
    across = tl.cdiv(N, BLOCK)
    rm = tile // across * BLOCK + tl.arange(0, BLOCK)
    rn = tile % across * BLOCK + tl.arange(0, BLOCK)
    a += batch * M * K
    b += batch * K * N
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        rk = k + tl.arange(0, BLOCK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        w = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
    tl.store(c + batch * M * N + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        batches, M, K = a.shape
        N = b.shape[2]
        c = torch.empty((batches, M, N), device=a.device)
        tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
        product_kernel[(tiles * batches,)](a, b, c, batches, M, N, K, BLOCK=32)
        return c
