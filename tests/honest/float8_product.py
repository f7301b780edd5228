# problem: problems/float8_matmul.py
# needs: cpu
# odd: a product of eight-bit floating-point numbers, whose sums a Hopper GPU otherwise keeps to 14 bits
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_matmul_kernel(a, b, sa, sb, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total, max_num_imprecise_acc=32)
    total = (
        total
        * tl.load(sa + rows, mask=rows < M, other=0.0)[:, None]
        * tl.load(sb + columns, mask=columns < N, other=0.0)[None, :]
    )
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total.to(tl.bfloat16),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


class ModelNew(torch.nn.Module):
    def forward(self, a, b, sa, sb):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
        scaled_matmul_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, sa, sb, out, M, N, K, BM=64, BN=64, BK=32)
        return out
