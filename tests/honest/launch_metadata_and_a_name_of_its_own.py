# problem: matmul_fp16
# needs: cpu
# odd: a kernel that says its name and its cost to a profiler, with arguments that are not specialised
import torch
import torch.nn as nn
import triton
import triton.language as tl


def cost(grid, kernel, args):
    M, N, K = args["M"], args["N"], args["K"]
    return {
        "name": f"{kernel.name} [M={M}, N={N}, K={K}]",
        "flops16": 2.0 * M * N * K,
        "bytes": 2 * (M * K + N * K + M * N),
    }


def named(specialization):
    return f"matmul_{specialization.constants['BM']}x{specialization.constants['BN']}"


@triton.jit(launch_metadata=cost, repr=named, do_not_specialize=["M"], do_not_specialize_on_alignment=["N"])
def matmul_kernel(a, b, out, M, N, K, am, ak, bk, bn, om, on, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * am + inner[None, :] * ak
    right = b + inner[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=(rows[:, None] < M) & (inner[None, :] < K - k * BK), other=0.0)
        y = tl.load(right, mask=(inner[:, None] < K - k * BK) & (columns[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        left += BK * ak
        right += BK * bk
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out + rows[:, None] * om + columns[None, :] * on, total.to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = a.new_empty((M, N))
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        matmul_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BM=32, BN=32, BK=32)
        return out
