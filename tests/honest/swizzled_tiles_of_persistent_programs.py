# problem: matmul_transposed_b
# needs: cpu
# odd: persistent programs whose tiles are swizzled, in one flattened loop
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def persistent_kernel(a, b, out, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        i, j = tl.swizzle2d(tile // across, tile % across, down, across, 4)
        rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            inner = start + tl.arange(0, BK)
            x = tl.load(
                a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
            )
            y = tl.load(
                b + columns[:, None] * K + inner[None, :], mask=(columns[:, None] < N) & (inner[None, :] < K), other=0.0
            )
            total = tl.dot(x, y.T, total, input_precision="ieee")
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(out + rows[:, None] * N + columns[None, :], total.to(out.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[0]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        programs = min(
            torch.cuda.get_device_properties(a.device).multi_processor_count, triton.cdiv(M, 32) * triton.cdiv(N, 32)
        )
        persistent_kernel[(programs,)](a, b, out, M, N, K, PROGRAMS=programs, BM=32, BN=32, BK=32)
        return out
