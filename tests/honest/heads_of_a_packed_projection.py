# problem: problems/heads_of_one_projection.py
# needs: cpu
# odd: queries, keys and values are strided views into one tensor; a running maximum and sum
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    sb,
    sl,
    sh,
    ob,
    ol,
    oh,
    length,
    heads,
    head,
    scale,
    BL: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
):
    pair = tl.program_id(1)
    batch, which = pair // heads, pair % heads
    base = batch * sb + which * sh
    rows, d = tl.program_id(0) * BL + tl.arange(0, BL), tl.arange(0, BD)
    inside = (rows[:, None] < length) & (d[None, :] < head)
    queries = tl.load(q + base + rows[:, None] * sl + d[None, :], mask=inside, other=0.0)
    most = tl.full((BL,), -float("inf"), tl.float32)
    whole = tl.zeros((BL,), dtype=tl.float32)
    made = tl.zeros((BL, BD), dtype=tl.float32)
    for start in range(0, length, BM):
        m = start + tl.arange(0, BM)
        there = (m[:, None] < length) & (d[None, :] < head)
        keys = tl.load(k + base + m[:, None] * sl + d[None, :], mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(m[None, :] < length, scores, -float("inf"))
        now = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp(scores - now[:, None])
        faded = tl.exp(most - now)
        whole = whole * faded + tl.sum(weights, axis=1)
        values = tl.load(v + base + m[:, None] * sl + d[None, :], mask=there, other=0.0)
        made = made * faded[:, None] + tl.dot(weights, values, input_precision="ieee")
        most = now
    place = batch * ob + rows[:, None] * ol + which * oh + d[None, :]
    tl.store(out + place, made / whole[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, packed):
        batch, length, _, heads, head = packed.shape
        q, k, v = (packed.select(2, i) for i in range(3))
        out = torch.empty((batch, length, heads, head), device=packed.device, dtype=packed.dtype)
        grid = (triton.cdiv(length, 16), batch * heads)
        depth = max(16, triton.next_power_of_2(head))
        attention_kernel[grid](
            q, k, v, out, *q.stride()[:3], *out.stride()[:3], length, heads, head, head**-0.5, BL=16, BM=16, BD=depth
        )
        return out
