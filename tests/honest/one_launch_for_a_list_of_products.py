# problem: problems/products_of_lists.py
# needs: cpu
# odd: tuples of pointers and of sizes made from lists that forward is given; a list is given back
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tile_of(a, b, out, tile, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(N, BN)
    rows = tile // across * BM + tl.arange(0, BM)
    columns = tile % across * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y, input_precision="ieee")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def grouped_kernel(lefts, rights, outs, sizes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    for g in tl.static_range(len(lefts)):
        M, N, K = sizes[g]
        tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
        if (tile >= 0) & (tile < tiles):
            tile_of(lefts[g], rights[g], outs[g], tile, M, N, K, BM, BN, BK)
        tile -= tiles


class ModelNew(nn.Module):
    def forward(self, lefts, rights):
        outs = [a.new_empty((a.shape[0], b.shape[1])) for a, b in zip(lefts, rights, strict=True)]
        sizes = tuple((a.shape[0], b.shape[1], a.shape[1]) for a, b in zip(lefts, rights))
        tiles = sum(triton.cdiv(m, 32) * triton.cdiv(n, 32) for m, n, _ in sizes)
        grouped_kernel[(tiles,)](tuple(lefts), tuple(rights), tuple(outs), sizes, BM=32, BN=32, BK=32)
        return outs
