# problem: matmul
# odd: split-K into a cached workspace, second kernel reduces
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, split_depth,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """Split number s sums k from s * split_depth on, into its own slice of the workspace."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    first = split * split_depth
    last = tl.minimum(first + split_depth, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        depth = k + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (depth[None, :] < last)
        b_mask = (depth[:, None] < last) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None].to(tl.int64) * K + depth[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + depth[:, None].to(tl.int64) * N + columns[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out = part_ptr + split.to(tl.int64) * M * N + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(out, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def sum_splits_kernel(part_ptr, c_ptr, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(SPLITS):
        total += tl.load(part_ptr + split * n.to(tl.int64) + offsets, mask=mask, other=0.0)
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    """The workspace is kept between calls: every call writes all of it before anything is read."""

    splits = 2

    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        (M, K), N = a.shape, b.shape[1]
        shape = (self.splits, M, N)
        if self.workspace is None or self.workspace.shape != shape or self.workspace.device != a.device:
            self.workspace = torch.empty(shape, device=a.device, dtype=torch.float32)
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), self.splits)
        split_depth = triton.cdiv(K, self.splits)
        partial_matmul_kernel[grid](
            a, b, self.workspace, M, N, K, split_depth, BLOCK_M=64, BLOCK_N=64, BLOCK_K=16, num_warps=4
        )
        sum_splits_kernel[(triton.cdiv(M * N, 1024),)](self.workspace, c, M * N, SPLITS=self.splits, BLOCK=1024)
        return c
