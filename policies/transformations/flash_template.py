"""Template of a flash attention kernel: a block of queries against all keys, with a running
maximum and sum.

Scores are never stored in memory (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
arXiv:2205.14135).
"""

from __future__ import annotations

KERNEL = '''@triton.jit
def flash_attention_kernel(
    query_pointer, key_pointer, value_pointer, mask_pointer, out_pointer,
    heads, key_heads, queries, keys, head_dim, value_dim, scale,
    query_batch, query_head, query_row, query_column,
    key_batch, key_head, key_row, key_column,
    value_batch, value_head, value_row, value_column,
    mask_batch, mask_head, mask_row, mask_column,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, FILL: tl.constexpr, ZERO_ROWS: tl.constexpr,
    QUERY_BLOCK: tl.constexpr, KEY_BLOCK: tl.constexpr, HEAD: tl.constexpr, VALUE: tl.constexpr,
):
    """Softmax of scaled products, times values: MASK 1 is added, 2 keeps where it is true, 3 drops where it is true."""
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    key_head_number = head // (heads // key_heads)
    first_row = tl.program_id(0) * QUERY_BLOCK
    row = first_row + tl.arange(0, QUERY_BLOCK)
    row_exists = row < queries
    column = tl.arange(0, HEAD)
    value_column_number = tl.arange(0, VALUE)
    query_start = query_pointer + batch * query_batch + head * query_head
    query = tl.load(
        query_start + row.to(tl.int64)[:, None] * query_row + column[None, :] * query_column,
        mask=row_exists[:, None] & (column < head_dim)[None, :], other=0.0,
    )
    key_start = key_pointer + batch * key_batch + key_head_number * key_head
    value_start = value_pointer + batch * value_batch + key_head_number * value_head
    largest = tl.full((QUERY_BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((QUERY_BLOCK,), tl.float32)
    result = tl.zeros((QUERY_BLOCK, VALUE), tl.float32)
    last_key = keys
    if CAUSAL:
        last_key = tl.minimum(first_row + QUERY_BLOCK, keys)
    for first_key in range(0, last_key, KEY_BLOCK):
        key_number = first_key + tl.arange(0, KEY_BLOCK)
        key_exists = key_number < keys
        key = tl.load(
            key_start + key_number.to(tl.int64)[None, :] * key_row + column[:, None] * key_column,
            mask=key_exists[None, :] & (column < head_dim)[:, None], other=0.0,
        )
        score = tl.dot(query, key, input_precision="ieee") * scale
        if MASK > 0:
            mask_start = mask_pointer + batch * mask_batch + head * mask_head
            mask = tl.load(
                mask_start + row.to(tl.int64)[:, None] * mask_row + key_number.to(tl.int64)[None, :] * mask_column,
                mask=row_exists[:, None] & key_exists[None, :], other=0,
            )
            if MASK == 1:
                score += mask.to(tl.float32)
            elif MASK == 2:
                score = tl.where(mask != 0, score, FILL)
            else:
                score = tl.where(mask != 0, FILL, score)
        if CAUSAL:
            score = tl.where(key_number[None, :] <= row[:, None], score, -float("inf"))
        score = tl.where(key_exists[None, :], score, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(score, axis=1))
        shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)
        correction = tl.exp(largest - shift)
        weight = tl.exp(score - shift[:, None])
        total = total * correction + tl.sum(weight, axis=1)
        value = tl.load(
            value_start + key_number.to(tl.int64)[:, None] * value_row + value_column_number[None, :] * value_column,
            mask=key_exists[:, None] & (value_column_number < value_dim)[None, :], other=0.0,
        )
        result = result * correction[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        largest = new_largest
    result = result / total[:, None]
    if ZERO_ROWS:
        result = tl.where((total == 0.0)[:, None], 0.0, result)
    out_start = out_pointer + tl.program_id(1).to(tl.int64) * queries * value_dim
    tl.store(
        out_start + row.to(tl.int64)[:, None] * value_dim + value_column_number[None, :],
        result.to(out_pointer.dtype.element_ty),
        mask=row_exists[:, None] & (value_column_number < value_dim)[None, :],
    )
'''

HOST = '''def block_for(extent):
    """A power of two that holds the extent, at least what a product needs."""
    return max(16, triton.next_power_of_2(extent))


def four_axes(tensor):
    """(batch, heads, rows, columns) of a tensor that may lack the first ones."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0 if tensor.dim() != 3 else 1)
    return tensor


def flash_attention(query, key, value, scale{mask_parameter}):
    """softmax(query key^T * scale) value, in one launch."""
    shape = (*query.shape[:-1], value.shape[-1])
{mask_axes}    query, key, value = four_axes(query), four_axes(key), four_axes(value)
    batch, heads, queries, head_dim = query.shape
    key_heads, keys, value_dim = key.shape[1], key.shape[2], value.shape[3]
    out = torch.empty((batch, heads, queries, value_dim), device=query.device, dtype=query.dtype)
{mask_lines}    flash_attention_kernel[lambda block: (triton.cdiv(queries, block["QUERY_BLOCK"]), batch * heads)](
        query, key, value, {mask}, out, heads, key_heads, queries, keys, head_dim, value_dim, scale,
        *query.stride(), *key.stride(), *value.stride(), {mask_strides},
        CAUSAL={causal}, MASK={kind}, FILL={fill}, ZERO_ROWS={zero_rows},
        QUERY_BLOCK=64, KEY_BLOCK=32, HEAD=block_for(head_dim), VALUE=block_for(value_dim), num_warps=4, num_stages=2,
    )
    return out.reshape(shape)
'''

MASK_AXES = """    mask = mask.unsqueeze(1) if query.dim() == mask.dim() == 3 else mask
"""
MASK_LINES = """    mask = mask.expand((batch, heads, queries, keys))
"""


def attention_text(*, causal: bool, mask_kind: int, fill: float, zero_rows: bool) -> str:
    """Returns the kernel and the host function. mask_kind: as `MaskKind` numbers them."""
    masked = mask_kind > 0
    written = 'float("-inf")' if fill == float("-inf") else repr(fill)
    host = HOST.format(
        mask_parameter=", mask" if masked else "", mask_axes=MASK_AXES if masked else "",
        mask_lines=MASK_LINES if masked else "",
        mask="mask" if masked else "query", mask_strides="*mask.stride()" if masked else "0, 0, 0, 0",
        causal=causal, kind=mask_kind, fill=written, zero_rows=zero_rows,
    )  # fmt: skip
    return f"{KERNEL}\n\n{host}"
