# problem: causal_attention
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def causal_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, head_dim, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):
    """Blocks of keys that lie wholly after the block of queries are not visited."""
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    base = head * length * head_dim
    q_places = base + rows[:, None] * head_dim + dims[None, :]
    q_mask = (rows[:, None] < length) & (dims[None, :] < head_dim)
    q = tl.load(q_ptr + q_places, mask=q_mask, other=0.0) * scale
    maximum = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        places = base + columns[:, None] * head_dim + dims[None, :]
        mask = (columns[:, None] < length) & (dims[None, :] < head_dim)
        k = tl.load(k_ptr + places, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(columns[None, :] <= rows[:, None], scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
        correction = tl.exp(maximum - new_maximum)
        weights = tl.exp(scores - new_maximum[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + places, mask=mask, other=0.0)
        acc = acc * correction[:, None] + tl.dot(weights, v, input_precision="ieee")
        maximum = new_maximum
    tl.store(out_ptr + q_places, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=q_mask)


class ModelNew(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, heads, length, head_dim = query.shape
        out = torch.empty_like(query)
        causal_attention_kernel[(triton.cdiv(length, 64), batch * heads)](
            query, key, value, out, length, head_dim, head_dim**-0.5,
            BLOCK_M=64, BLOCK_N=32, HEAD=max(16, triton.next_power_of_2(head_dim)), num_warps=8, num_stages=2,
        )
        return out
