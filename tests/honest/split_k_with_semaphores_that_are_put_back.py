# problem: matmul
# needs: cpu
# odd: the last program of a tile adds the parts of the others and puts the semaphore back to 0 for the next call
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_kernel(
    a, b, out, parts, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr
):
    tile, split = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(N, BN)
    rows = tile // across * BM + tl.arange(0, BM)
    columns = tile % across * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(split * BK, K, SPLITS * BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(left, right, input_precision="ieee")
    place = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(parts + (tile * SPLITS + split) * BM * BN + place, total)
    tl.debug_barrier()
    arrived = tl.atomic_add(locks + tile, 1, sem="acq_rel")
    if arrived == SPLITS - 1:
        whole = tl.zeros((BM, BN), dtype=tl.float32)
        for other in range(SPLITS):
            whole += tl.load(parts + (tile * SPLITS + other) * BM * BN + place)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(out + rows[:, None] * N + columns[None, :], whole.to(out.dtype.element_ty), mask=inside)
        tl.atomic_xchg(locks + tile, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.locks = None

    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
        if self.locks is None or self.locks.numel() < tiles or self.locks.device != a.device:
            self.locks = torch.zeros(tiles, dtype=torch.int32, device=a.device)
        parts = torch.empty((tiles, 2, 32, 32), dtype=torch.float32, device=a.device)
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
        split_kernel[(tiles, 2)](a, b, out, parts, self.locks, M, N, K, BM=32, BN=32, BK=32, SPLITS=2)
        return out
