# problem: matmul_fp16
# odd: tensor descriptors (TMA) where the strides allow, pointers where they do not
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def descriptor_matmul_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Out-of-range elements are read as zero and never written: that is the descriptor's own work."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def pointer_matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    columns = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        depth = k + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (depth[None, :] < K)
        b_mask = (depth[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        m, n, k = self.tile.values()
        grid = (triton.cdiv(M, m), triton.cdiv(N, n))
        # A descriptor needs rows of whole 16 bytes.
        if K % 8 == 0 and N % 8 == 0:
            described = [TensorDescriptor.from_tensor(t, block) for t, block in ((a, [m, k]), (b, [k, n]), (c, [m, n]))]
            descriptor_matmul_kernel[grid](*described, M, N, K, **self.tile, num_warps=8, num_stages=3)
        else:
            pointer_matmul_kernel[grid](a, b, c, M, N, K, **self.tile, num_warps=8, num_stages=3)
        return c
