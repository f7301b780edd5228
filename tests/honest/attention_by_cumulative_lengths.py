# problem: problems/attention_of_packed_sequences.py
# needs: cpu
# odd: bounds come from cu_seqlens; programs past the end of a sequence return early; an upper bound sets the grid
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _varlen_fwd(
    Q,
    K,
    V,
    O,
    cu,
    scale,
    s_t,
    s_h,
    o_t,
    o_h,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    start_m, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(cu + seq)
    length = tl.load(cu + seq + 1) - begin
    if start_m * BLOCK_M >= length:
        return
    rm = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_mask = (rm[:, None] < length) & (d[None, :] < D)
    q = tl.load(Q + (begin + rm[:, None]) * s_t + head * s_h + d[None, :], mask=q_mask, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    last = tl.minimum((start_m + 1) * BLOCK_M, length)
    for start_n in range(0, last, BLOCK_N):
        rn = start_n + tl.arange(0, BLOCK_N)
        kv_mask = (rn[:, None] < length) & (d[None, :] < D)
        k = tl.load(K + (begin + rn[:, None]) * s_t + head * s_h + d[None, :], mask=kv_mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2E)
        s = tl.where((rn[None, :] <= rm[:, None]) & (rn[None, :] < length), s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        v = tl.load(V + (begin + rn[:, None]) * s_t + head * s_h + d[None, :], mask=kv_mask, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(O + (begin + rm[:, None]) * o_t + head * o_h + d[None, :], acc / l[:, None], mask=q_mask)


class ModelNew(nn.Module):
    def forward(self, q, k, v, cu):
        total, heads, width = q.shape
        out = torch.empty_like(q)
        sequences = cu.numel() - 1
        longest = triton.cdiv(total, sequences)
        _varlen_fwd[(triton.cdiv(longest, 32), heads, sequences)](
            q,
            k,
            v,
            out,
            cu,
            1.0 / math.sqrt(width),
            q.stride(0),
            q.stride(1),
            out.stride(0),
            out.stride(1),
            D=width,
            BLOCK_D=max(16, triton.next_power_of_2(width)),
            BLOCK_M=32,
            BLOCK_N=32,
        )
        return out
