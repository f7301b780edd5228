# problem: decode_attention
# odd: keys split over programs, second kernel merges
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_decode_kernel(
    q_ptr, k_ptr, v_ptr, part_ptr, maximum_ptr, total_ptr,
    heads, kv_heads, length, head_dim, splits, split_length, scale,
    GROUP: tl.constexpr, BLOCK: tl.constexpr, HEAD: tl.constexpr,
):
    """All query heads of one key head against one stretch of keys: every key is read once."""
    pair = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    group_size = heads // kv_heads
    group = tl.arange(0, GROUP)
    dims = tl.arange(0, HEAD)
    head = (pair // kv_heads) * heads + (pair % kv_heads) * group_size + group
    q_mask = (group[:, None] < group_size) & (dims[None, :] < head_dim)
    q = tl.load(q_ptr + head[:, None] * head_dim + dims[None, :], mask=q_mask, other=0.0) * scale
    maximum = tl.full((GROUP,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((GROUP,), dtype=tl.float32)
    acc = tl.zeros((GROUP, HEAD), dtype=tl.float32)
    last = tl.minimum((split + 1) * split_length, length)
    for start in range(split * split_length, last, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        places = (pair * length + keys[:, None]) * head_dim + dims[None, :]
        mask = (keys[:, None] < last) & (dims[None, :] < head_dim)
        k = tl.load(k_ptr + places, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(keys[None, :] < last, scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
        correction = tl.exp(maximum - new_maximum)
        weights = tl.exp(scores - new_maximum[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + places, mask=mask, other=0.0)
        acc = acc * correction[:, None] + tl.dot(weights, v, input_precision="ieee")
        maximum = new_maximum
    slot = head * splits + split
    tl.store(part_ptr + slot[:, None] * head_dim + dims[None, :], acc, mask=q_mask)
    tl.store(maximum_ptr + slot, maximum, mask=group < group_size)
    tl.store(total_ptr + slot, total, mask=group < group_size)


@triton.jit
def merge_splits_kernel(
    part_ptr, maximum_ptr, total_ptr, out_ptr, head_dim, splits, SPLITS: tl.constexpr, HEAD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    dims = tl.arange(0, HEAD)
    maximum = tl.load(maximum_ptr + head * splits + split, mask=split < splits, other=-float("inf"))
    total = tl.load(total_ptr + head * splits + split, mask=split < splits, other=0.0)
    factor = tl.exp(maximum - tl.max(maximum, axis=0))
    mask = (split[:, None] < splits) & (dims[None, :] < head_dim)
    part = tl.load(part_ptr + (head * splits + split[:, None]) * head_dim + dims[None, :], mask=mask, other=0.0)
    out = tl.sum(part * factor[:, None], axis=0) / tl.sum(total * factor, axis=0)
    tl.store(out_ptr + head * head_dim + dims, out.to(out_ptr.dtype.element_ty), mask=dims < head_dim)


class ModelNew(nn.Module):
    split_length = 256

    def forward(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
        batch, heads, head_dim = query.shape
        kv_heads, length = keys.shape[1], keys.shape[2]
        splits = triton.cdiv(length, self.split_length)
        part = torch.empty((batch, heads, splits, head_dim), device=query.device, dtype=torch.float32)
        maximum, total = (torch.empty((batch, heads, splits), device=query.device, dtype=torch.float32) for _ in "mt")
        out = torch.empty_like(query)
        padded = max(16, triton.next_power_of_2(head_dim))
        split_decode_kernel[(batch * kv_heads, splits)](
            query, keys, values, part, maximum, total,
            heads, kv_heads, length, head_dim, splits, self.split_length, head_dim**-0.5,
            GROUP=max(16, triton.next_power_of_2(heads // kv_heads)), BLOCK=32, HEAD=padded, num_warps=4, num_stages=2,
        )
        merge_splits_kernel[(batch * heads,)](
            part, maximum, total, out, head_dim, splits, SPLITS=triton.next_power_of_2(splits), HEAD=padded
        )
        return out
