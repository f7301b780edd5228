# problem: matmul
# needs: cpu
# odd: programs share the steps of all tiles, and hand their parts to the owner of a tile by locks
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, parts, locks, M, N, K, each, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    worker = tl.program_id(0)
    steps, across = tl.cdiv(K, BK), tl.cdiv(N, BN)
    step, end = worker * each, tl.minimum((worker + 1) * each, tl.cdiv(M, BM) * across * steps)
    inner = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    while step < end:
        tile = step // steps
        stop = tl.minimum((tile + 1) * steps, end)
        m = tile // across * BM + tl.arange(0, BM)
        n = tile % across * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        first = step
        while step < stop:
            k = (step - tile * steps) * BK + tl.arange(0, BK)
            left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            total += tl.dot(left, right, input_precision="ieee")
            step += 1
        if first == tile * steps:
            finished = stop
            helper = worker + 1
            while finished < (tile + 1) * steps:
                while tl.atomic_cas(locks + helper, 1, 1, sem="acquire") == 0:
                    pass
                total += tl.load(parts + helper * BM * BN + inner)
                finished += each
                helper += 1
            tl.store(out + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
        else:
            tl.store(parts + worker * BM * BN + inner, total)
            tl.debug_barrier()
            tl.atomic_xchg(locks + worker, 1, sem="release")


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        steps = triton.cdiv(M, 32) * triton.cdiv(N, 32) * triton.cdiv(K, 32)
        workers = min(steps, 7)
        parts = torch.empty((workers, 32, 32), dtype=torch.float32, device=a.device)
        locks = torch.zeros(workers, dtype=torch.int32, device=a.device)
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
        kernel[(workers,)](a, b, out, parts, locks, M, N, K, triton.cdiv(steps, workers), BM=32, BN=32, BK=32)
        return out
