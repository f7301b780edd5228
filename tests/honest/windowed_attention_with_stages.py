# problem: problems/windowed_attention.py
# needs: cpu
# odd: a function of constexpr stages walks full and masked blocks apart; keys start where the window does
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _inner(
    acc,
    l,
    m,
    q,
    K,
    V,
    rm,
    low,
    high,
    steps,
    window,
    scale,
    stride,
    WIDTH: tl.constexpr,
    DIM: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    d = tl.arange(0, DIM)
    for start in tl.range(low, high, BN):
        rn = start + tl.arange(0, BN)
        mask = (rn < steps)[:, None] & (d < WIDTH)[None, :]
        k = tl.load(K + rn[:, None] * stride + d[None, :], mask=mask, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        if MASKED:
            far = rm[:, None] - rn[None, :]
            s = tl.where((far >= 0) & (far < window) & (rn < steps)[None, :], s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(s - safe[:, None])
        fade = tl.exp(m - safe)
        l = l * fade + tl.sum(p, 1)
        v = tl.load(V + rn[:, None] * stride + d[None, :], mask=mask, other=0.0)
        acc = tl.dot(p, v, acc * fade[:, None], input_precision="ieee")
        m = new
    return acc, l, m


@triton.jit
def _attention(
    Q,
    K,
    V,
    O,
    L,
    heads,
    share,
    steps,
    window,
    scale,
    WIDTH: tl.constexpr,
    DIM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    block, bh = tl.program_id(0), tl.program_id(1)
    groups = heads // share
    kv = (bh // heads) * groups + (bh % heads) // share
    K += kv.to(tl.int64) * steps * WIDTH
    V += kv.to(tl.int64) * steps * WIDTH
    rm = block * BM + tl.arange(0, BM)
    d = tl.arange(0, DIM)
    at = (bh.to(tl.int64) * steps + rm[:, None]) * WIDTH + d[None, :]
    mask = (rm < steps)[:, None] & (d < WIDTH)[None, :]
    q = tl.load(Q + at, mask=mask, other=0.0)
    acc = tl.zeros((BM, DIM), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    m = tl.full((BM,), float("-inf"), tl.float32)
    first = tl.maximum(0, block * BM - window + 1) // BN * BN
    last = tl.minimum(steps, (block + 1) * BM)
    whole_from = tl.minimum(tl.cdiv(tl.maximum(0, (block + 1) * BM - window), BN) * BN, last)
    whole_to = tl.maximum((block * BM) // BN * BN, whole_from)
    acc, l, m = _inner(acc, l, m, q, K, V, rm, first, whole_from, steps, window, scale, WIDTH, WIDTH, DIM, BN, True)
    acc, l, m = _inner(acc, l, m, q, K, V, rm, whole_from, whole_to, steps, window, scale, WIDTH, WIDTH, DIM, BN, False)
    acc, l, m = _inner(acc, l, m, q, K, V, rm, whole_to, last, steps, window, scale, WIDTH, WIDTH, DIM, BN, True)
    tl.store(O + at, acc / l[:, None], mask=mask)
    tl.store(L + bh.to(tl.int64) * steps + rm, m + tl.log(l), mask=rm < steps)


class ModelNew(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, steps, width = q.shape
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
        _attention[(triton.cdiv(steps, 16), batch * heads)](
            q,
            k,
            v,
            out,
            lse,
            heads,
            heads // k.shape[1],
            steps,
            self.window,
            width**-0.5,
            WIDTH=width,
            DIM=max(16, triton.next_power_of_2(width)),
            BM=16,
            BN=16,
        )
        return out, lse
