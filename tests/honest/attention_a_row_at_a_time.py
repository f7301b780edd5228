# problem: attention
# needs: cpu
# odd: one program a query: scores of all keys of a block by sums, no product of blocks
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q, k, v, out, length, dim, scale, BLOCK: tl.constexpr, DIM: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    head = place // length
    d = tl.arange(0, DIM)
    query = tl.load(q + place * dim + d, mask=d < dim, other=0.0) * scale
    top, total = -float("inf"), 0.0
    acc = tl.zeros((DIM,), dtype=tl.float32)
    for start in range(0, length, BLOCK):
        key = start + tl.arange(0, BLOCK)
        inside = (key < length)[:, None] & (d < dim)[None, :]
        at = (head * length + key)[:, None] * dim + d[None, :]
        s = tl.sum(tl.load(k + at, mask=inside, other=0.0) * query[None, :], axis=1)
        s = tl.where(key < length, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=0))
        p = tl.exp(s - new)
        fade = tl.exp(top - new)
        total = total * fade + tl.sum(p, axis=0)
        acc = acc * fade + tl.sum(p[:, None] * tl.load(v + at, mask=inside, other=0.0), axis=0)
        top = new
    tl.store(out + place * dim + d, acc / total, mask=d < dim)


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, heads, length, dim = query.shape
        out = torch.empty_like(query)
        attention_kernel[(batch * heads * length,)](
            query, key, value, out, length, dim, dim**-0.5, BLOCK=64, DIM=triton.next_power_of_2(dim)
        )
        return out
