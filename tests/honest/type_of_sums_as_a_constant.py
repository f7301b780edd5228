# problem: matmul_fp16
# needs: cpu
# odd: dtype constexprs, programs grouped for the cache, hints of divisibility
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    sa,
    sb,
    SUM: tl.constexpr,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    program = tl.program_id(0)
    across, down = tl.cdiv(N, BN), tl.cdiv(M, BM)
    group = program // (GROUP * across)
    first = group * GROUP
    height = min(down - first, GROUP)
    m = first + (program % (GROUP * across)) % height
    n = (program % (GROUP * across)) // height
    tl.assume(m >= 0)
    tl.assume(n >= 0)
    rows = (m * BM + tl.arange(0, BM)) % M
    columns = (n * BN + tl.arange(0, BN)) % N
    total = tl.zeros((BM, BN), dtype=SUM)
    for start in tl.range(0, tl.cdiv(K, BK)):
        inner = start * BK + tl.arange(0, BK)
        left = tl.load(a_ptr + rows[:, None] * sa + inner[None, :], mask=inner[None, :] < K, other=0.0)
        right = tl.load(b_ptr + inner[:, None] * sb + columns[None, :], mask=inner[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    rows, columns = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        total.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
        matmul_kernel[grid](
            a, b, c, M, N, K, a.stride(0), b.stride(0), SUM=tl.float32, GROUP=4, BM=64, BN=32, BK=32, num_stages=3
        )
        return c
