# problem: problems/layer_norm_gradients.py
# needs: cpu
# odd: as a tutorial has it: groups of rows take turns at a buffer by compare-and-swap, the first one stores
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _dx(DX, DY, DW, DB, X, W, Lock, stride, N, eps, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP
    Lock += lock_id
    Count = Lock + GROUP
    DW = DW + lock_id * N + c
    DB = DB + lock_id * N + c
    x = tl.load(X + c, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + c, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + c, mask=mask).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + eps)
    xhat = centred * rstd
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + c, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def _dwdb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_M):
        rows = i + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.0)
        db += tl.load(DB + offs, mask=mask, other=0.0)
    tl.store(FINAL_DW + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.store(FINAL_DB + cols, tl.sum(db, axis=0), mask=cols < N)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x, grad):
        M, N = x.shape
        GROUP = 64
        if N <= 8192:
            GROUP = 96
        if N <= 4096:
            GROUP = 128
        if N <= 1024:
            GROUP = 256
        locks = torch.zeros(2 * GROUP, dtype=torch.int32, device=x.device)
        _dw = torch.zeros((GROUP, N), dtype=x.dtype, device=x.device)
        _db = torch.zeros((GROUP, N), dtype=x.dtype, device=x.device)
        dx, dw, db = torch.empty_like(grad), torch.empty_like(self.weight), torch.empty_like(self.weight)
        BLOCK = triton.next_power_of_2(N)
        _dx[(M,)](
            dx,
            grad,
            _dw,
            _db,
            x,
            self.weight,
            locks,
            x.stride(0),
            N,
            1e-5,
            GROUP=GROUP,
            BLOCK=BLOCK,
            num_warps=min(max(BLOCK // 256, 1), 8),
        )
        _dwdb[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]),)](
            _dw, _db, dw, db, min(GROUP, M), N, BLOCK_M=32, BLOCK_N=128, num_ctas=1
        )
        return dx, dw, db
