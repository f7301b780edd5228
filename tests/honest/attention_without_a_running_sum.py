# problem: attention
# needs: cpu
# odd: two passes over the keys: the maxima and sums first, the products with the values after
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scores(q, k, at, d, length, dim, scale, D: tl.constexpr):
    keys = tl.load(k + at[None, :] * dim + d[:, None], mask=(at[None, :] < length) & (d[:, None] < dim), other=0.0)
    made = tl.dot(q, keys, input_precision="ieee") * scale
    return tl.where(at[None, :] < length, made, -float("inf"))


@triton.jit
def attention_kernel(q, k, v, out, length, dim, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * dim
    r, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    inside = (r[:, None] < length) & (d[None, :] < dim)
    queries = tl.load(q + head + r[:, None] * dim + d[None, :], mask=inside, other=0.0)
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, length, N):
        s = scores(queries, k + head, start + tl.arange(0, N), d, length, dim, scale, D)
        new = tl.maximum(top, tl.max(s, axis=1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(s - new[:, None]), axis=1)
        top = new
    result = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        at = start + tl.arange(0, N)
        p = tl.exp(scores(queries, k + head, at, d, length, dim, scale, D) - top[:, None]) / total[:, None]
        values = tl.load(
            v + head + at[:, None] * dim + d[None, :], mask=(at[:, None] < length) & (d[None, :] < dim), other=0.0
        )
        result = tl.dot(p, values, result, input_precision="ieee")
    tl.store(out + head + r[:, None] * dim + d[None, :], result, mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        length, dim = q.shape[-2:]
        heads = q.numel() // (length * dim)
        attention_kernel[(triton.cdiv(length, 16), heads)](
            q, k, v, out, length, dim, dim**-0.5, M=16, N=32, D=max(16, triton.next_power_of_2(dim))
        )
        return out
