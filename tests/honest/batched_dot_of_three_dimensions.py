# problem: batched_matmul
# needs: cpu
# odd: tl.dot of blocks of three dimensions, batches in the third axis of the grid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, batches, M, N, K, BB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    batch = tl.program_id(2) * BB + tl.arange(0, BB)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    b3, r3, c3 = batch[:, None, None].to(tl.int64), rows[None, :, None], columns[None, None, :]
    total = tl.zeros((BB, BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a_ptr + b3 * M * K + r3 * K + inner[None, None, :],
            mask=(b3 < batches) & (r3 < M) & (inner[None, None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b_ptr + b3 * K * N + inner[None, :, None] * N + c3,
            mask=(b3 < batches) & (inner[None, :, None] < K) & (c3 < N),
            other=0.0,
        )
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c_ptr + b3 * M * N + r3 * N + c3, total, mask=(b3 < batches) & (r3 < M) & (c3 < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (batches, M, K), N = a.shape, b.shape[2]
        c = torch.empty((batches, M, N), device=a.device, dtype=a.dtype)
        matmul_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16), triton.cdiv(batches, 2))](
            a, b, c, batches, M, N, K, BB=2, BM=16, BN=16, BK=16
        )
        return c
