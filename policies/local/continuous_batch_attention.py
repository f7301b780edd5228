"""Attention of one query per row over the row's window of a ring, without a mask.

The tokens of a row are a contiguous run of columns, modulo the ring's length, that ends at the
column just written.
A program reads the window of one row and one key/value head once, for all query heads of the
group, so the cost of a
step depends on the lengths of rows, not of the ring. The ends and lengths of windows lie in
device memory, so that a
captured step can be replayed. Long windows are not split over programs.

Imports torch and triton: import this module inside the function that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION_NAME = "kernelwright_ring"
"""The name under which this attention is registered with transformers."""
ATTENTION_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_TILE_BYTES = 8192
"""Bytes of keys a program holds at once, and as many of values."""
_LOG2_E = 1.4426950408889634
_OLDEST = (8, 0)
"""Compute capability from which on Triton's dot takes bf16."""


@triton.jit
def _attend(
    queries,
    keys,
    values,
    windows,
    out,
    scale,
    length,
    query_row,
    query_head,
    GROUP: tl.constexpr,
    PADDED: tl.constexpr,
    HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: rows, key/value heads. Softmax as it comes, block by block (Milakov and Gimelshein 2018, algorithm 3)."""
    row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heads = tl.num_programs(1)
    end, count = tl.load(windows + 2 * row), tl.load(windows + 2 * row + 1)
    start = end + 1 - count
    start = tl.where(start < 0, start + length, start)
    member, feature, lane = tl.arange(0, PADDED), tl.arange(0, HEAD), tl.arange(0, BLOCK)
    is_member = (member < GROUP)[:, None]
    query_at = (
        queries
        + row * query_row
        + (kv_head * GROUP + member)[:, None] * query_head
        + feature[None, :]
    )
    query = tl.load(query_at, mask=is_member, other=0.0)
    base = (row * heads + kv_head) * length * HEAD
    highest = tl.full((PADDED,), float("-inf"), tl.float32)
    total = tl.zeros((PADDED,), tl.float32)
    mixed = tl.zeros((PADDED, HEAD), tl.float32)
    for begin in range(0, count, BLOCK):
        inside = begin + lane < count
        column = start + begin + lane
        column = tl.where(column >= length, column - length, column)
        at = base + column[:, None] * HEAD + feature[None, :]
        key = tl.load(keys + at, mask=inside[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        score = tl.where(inside[None, :], score, float("-inf"))
        raised = tl.maximum(highest, tl.max(score, axis=1))
        weight = tl.exp2(score - raised[:, None])
        shrink = tl.exp2(highest - raised)
        value = tl.load(values + at, mask=inside[:, None], other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(
            weight.to(value.dtype), value, input_precision=PRECISION
        )
        total = total * shrink + tl.sum(weight, axis=1)
        highest = raised
    out_at = (
        out + (row * heads + kv_head) * GROUP * HEAD + member[:, None] * HEAD + feature[None, :]
    )
    tl.store(out_at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=is_member)


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    windows: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Returns attention (rows, 1, heads, head size) of queries (rows, heads, 1, head size).

    Keys and values: (rows, key/value heads, length, head size), contiguous. Windows: int32, two
    per row: the last column
    and the number of columns, from 1 to the length. The tensors' GPU must be the current one.
    """
    rows, heads, _, head = queries.shape
    kv_heads, length = keys.shape[1:3]
    if not (
        keys.is_contiguous()
        and values.is_contiguous()
        and windows.is_contiguous()
        and queries.stride(-1) == 1
    ):
        raise ValueError("keys, values and windows must be contiguous, and each query")
    out = torch.empty((rows, 1, heads, head), dtype=queries.dtype, device=queries.device)
    block = max(16, min(128, _TILE_BYTES // (head * keys.element_size())))
    group = heads // kv_heads
    _attend[(rows, kv_heads)](
        queries, keys, values, windows, out, scale * _LOG2_E, length, queries.stride(0), queries.stride(1),
        GROUP=group, PADDED=max(16, triton.next_power_of_2(group)), HEAD=head, BLOCK=block,
        PRECISION="ieee" if queries.dtype == torch.float32 else "tf32", num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def attends_windows(model: PreTrainedModel) -> bool:
    """Returns whether `attend` can replace this model's attention.

    The model must use transformers' attention interface, and apply nothing to the scores but a
    softmax.
    """
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return (
        config.get_text_config() is config
        and bool(getattr(model, "_supports_attention_backend", False))
        and not getattr(config, "attn_logit_softcapping", None)
        and model.dtype in ATTENTION_DTYPES
        and head >= 16
        and head & (head - 1) == 0
        and (
            model.device.type != "cuda" or torch.cuda.get_device_capability(model.device) >= _OLDEST
        )
    )


@contextmanager
def windows_for_masks(model: PreTrainedModel) -> Iterator[None]:
    """Replaces the model's attention by `attend` inside the `with` block.

    The 4-dimensional attention mask is then read as windows (rows, 1, 1, 2). Changes the model's
    config during the
    block: use from one thread at a time.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, _instead)
    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _instead(
    module: object,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    return attend(
        query, key, value, attention_mask, query.shape[-1] ** -0.5 if scaling is None else scaling
    ), None
