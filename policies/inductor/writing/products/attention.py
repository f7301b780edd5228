"""The operator of attention in a draft: a flash kernel (a block of queries against all keys, with a running maximum and
sum, so that scores never lie in memory: Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
arXiv:2205.14135), or torch's own in share mode.
"""

from __future__ import annotations

import ast
import re

CALL = re.compile(r"torch\.ops\.kernelwright\.attention(\.default)?\(")
"""The operator (functions/operators/attention.py) in the code Inductor generated."""
LIBRARY_NAME = "scaled_dot_product_attention"
FLASH = "flash_attention"

DEFAULTS = {"fill": ("-inf", "float('-inf')"), "cap": ("0.0",), "zero_rows": ("True",)}
"""Default values of the operator's last arguments, as written by Inductor."""

FLASH_TEXT = '''@triton.jit
def flash_attention_kernel(
    query_pointer, key_pointer, value_pointer, mask_pointer, out_pointer,
    heads, key_heads, value_heads, queries, keys, head_dim, value_dim, scale,
    query_batch, query_head, query_row, query_column,
    key_batch, key_head, key_row, key_column,
    value_batch, value_head, value_row, value_column,
    mask_batch, mask_head, mask_row, mask_column,
    out_batch, out_head, out_row,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, FILL: tl.constexpr, CAP: tl.constexpr, ZERO_ROWS: tl.constexpr,
    WHOLE: tl.constexpr, INDEX: tl.constexpr,
    QUERY_BLOCK: tl.constexpr, KEY_BLOCK: tl.constexpr, HEAD: tl.constexpr, VALUE: tl.constexpr,
):
    """Softmax of scaled products, times values, with exponents of two. MASK 1 adds, 2 gives FILL to what is false.
    CAP: c of c * tanh(score / c), or 0. WHOLE: a head fills its block.
    """
    blocks = tl.cdiv(queries, QUERY_BLOCK)
    pair = tl.program_id(0) // blocks
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)
    key_head_number = head // (heads // key_heads)
    value_head_number = head // (heads // value_heads)
    block = tl.program_id(0) % blocks
    if CAUSAL:  # the rows that see most keys begin first
        block = blocks - 1 - block
    first_row = block * QUERY_BLOCK
    row = first_row + tl.arange(0, QUERY_BLOCK)
    row_exists = row < queries
    column = tl.arange(0, HEAD)
    value_column_number = tl.arange(0, VALUE)
    query_start = query_pointer + batch * query_batch + head * query_head
    query = tl.load(
        query_start + row.to(INDEX)[:, None] * query_row + column[None, :] * query_column,
        mask=row_exists[:, None] & (column < head_dim)[None, :], other=0.0,
    )
    key_start = key_pointer + batch * key_batch + key_head_number * key_head
    value_start = value_pointer + batch * value_batch + value_head_number * value_head
    mask_start = mask_pointer + batch * mask_batch + head * mask_head
    largest = tl.full((QUERY_BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((QUERY_BLOCK,), tl.float32)
    result = tl.zeros((QUERY_BLOCK, VALUE), tl.float32)
    last_key = keys
    seen_by_all = keys
    if CAUSAL:
        last_key = tl.minimum(first_row + QUERY_BLOCK, keys)
        seen_by_all = tl.minimum(first_row + 1, keys)
    whole_keys = seen_by_all // KEY_BLOCK * KEY_BLOCK
    # Whole blocks of keys need no comparisons; the last ones do.
    for part in tl.static_range(2):
        begin = 0 if part == 0 else whole_keys
        end = whole_keys if part == 0 else last_key
        for first_key in range(begin, end, KEY_BLOCK):
            key_number = first_key + tl.arange(0, KEY_BLOCK)
            key_places = key_start + key_number.to(INDEX)[None, :] * key_row + column[:, None] * key_column
            value_places = (
                value_start + key_number.to(INDEX)[:, None] * value_row + value_column_number[None, :] * value_column
            )
            if part == 0 and WHOLE:
                key = tl.load(key_places)
                value = tl.load(value_places)
            else:
                key_exists = key_number < keys
                key = tl.load(key_places, mask=key_exists[None, :] & (column < head_dim)[:, None], other=0.0)
                value_exists = key_exists[:, None] & (value_column_number < value_dim)[None, :]
                value = tl.load(value_places, mask=value_exists, other=0.0)
            score = tl.dot(query, key, input_precision="ieee") * scale
            if CAP > 0:
                power = tl.exp2(score * (2 / CAP))
                score = CAP * 1.4426950408889634 * (1 - 2 / (power + 1))
            if MASK > 0:
                mask = tl.load(
                    mask_start + row.to(tl.int64)[:, None] * mask_row + key_number.to(tl.int64)[None, :] * mask_column,
                    mask=row_exists[:, None] & (key_number < keys)[None, :], other=0,
                )
                if MASK == 1:
                    # The least finite number stays finite: a row of it is a mean of all values.
                    added = mask.to(tl.float32) * 1.4426950408889634
                    is_overflow = (added == -float("inf")) & (mask.to(tl.float32) > -float("inf"))
                    score += tl.where(is_overflow, -3.3e38, added)
                elif ZERO_ROWS:  # added, as torch does: NaN in a score that is hidden stays NaN
                    score += tl.where(mask != 0, 0.0, FILL)
                else:
                    score = tl.where(mask != 0, score, FILL)
            if part == 1:
                is_seen = (key_number < keys)[None, :]
                if CAUSAL:
                    is_seen = is_seen & (key_number[None, :] <= row[:, None])
                score = tl.where(is_seen, score, -float("inf"))
            new_largest = tl.maximum(largest, tl.max(score, axis=1))
            shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)
            correction = tl.exp2(largest - shift)
            weight = tl.exp2(score - shift[:, None])
            total = total * correction + tl.sum(weight, axis=1)
            result = tl.dot(weight.to(value.dtype), value, result * correction[:, None], input_precision="ieee")
            largest = new_largest
    if ZERO_ROWS and (MASK > 0 or CAUSAL):  # a row that sees nothing is zero, as in torch's safe softmax
        total = tl.where(largest == -float("inf"), 1.0, total)
    result = result / total[:, None]
    out_start = out_pointer + batch * out_batch + head * out_head
    tl.store(
        out_start + row.to(tl.int64)[:, None] * out_row + value_column_number[None, :],
        result.to(out_pointer.dtype.element_ty),
        mask=row_exists[:, None] & (value_column_number < value_dim)[None, :],
    )


def fit_head(size):
    """A power of two that holds a head, at least what a product needs."""
    return max(16, triton.next_power_of_2(size))


def flash_attention(query, key, value, mask, causal, scale, fill=-float("inf"), cap=0.0, zero_rows=True):
    """softmax(query key^T * scale + mask) value, in one launch. The result lies as (batch, rows, heads, columns)."""
    batch, heads, queries, head_dim = query.shape
    (_, key_heads, keys, _), (_, value_heads, _, value_dim) = key.shape, value.shape
    out = torch.empty((batch, queries, heads, value_dim), device=query.device, dtype=query.dtype).transpose(1, 2)
    kind, seen = 0, query
    if mask is not None:
        kind, seen = (2 if mask.dtype == torch.bool else 1), mask.expand((batch, heads, queries, keys))
    reach = max((tensor.shape[2] + 512) * tensor.stride(2) for tensor in (query, key, value))
    head, whole = max(fit_head(head_dim), fit_head(value_dim)), fit_head(head_dim) == head_dim
    flash_attention_kernel[lambda block: (triton.cdiv(queries, block["QUERY_BLOCK"]) * batch * heads,)](
        query, key, value, seen, out, heads, key_heads, value_heads, queries, keys, head_dim, value_dim,
        (head_dim**-0.5 if scale is None else scale) * 1.4426950408889634,
        *query.stride(), *key.stride(), *value.stride(), *seen.stride(), *out.stride()[:3],
        CAUSAL=causal, MASK=kind, FILL=fill if fill == -float("inf") else max(fill * 1.4426950408889634, -3.3e38),
        CAP=cap, ZERO_ROWS=zero_rows, WHOLE=whole and fit_head(value_dim) == value_dim,
        INDEX=tl.int32 if reach < 2**31 else tl.int64,
        QUERY_BLOCK=min(64, fit_head(queries)), KEY_BLOCK=64 if head <= 128 else 32,
        HEAD=fit_head(head_dim), VALUE=fit_head(value_dim),
        num_warps=4 if head <= 128 else 8, num_stages=3 if head <= 128 else 2,
    )
    return out
'''
"""The kernel and its host function. Tiles were chosen by compiling for sm_90: none spills."""


def is_attention(line: str) -> bool:
    """Whether a line of the host calls the operator."""
    return bool(CALL.search(line))


def attention_statements(statement: ast.stmt) -> tuple[list[ast.stmt], bool]:
    """Returns statements with a call of the flash kernel's host function, or of torch's attention.

    Returns them, and whether the attention is torch's.
    """
    assert isinstance(statement, ast.Assign)
    assert isinstance(statement.value, ast.Call)
    arguments = [ast.unparse(argument) for argument in statement.value.args]
    query, key, value, mask, causal, scale, grouped, library, *others = arguments
    target = ast.unparse(statement.targets[0])
    if library == "False":
        names = ("fill", "cap", "zero_rows")
        named = dict(zip(names, others, strict=True))
        differing = [f"{n}={v}" for n, v in named.items() if v not in DEFAULTS[n]]
        called = ", ".join([query, key, value, mask, causal, scale, *differing])
        text = f"{target} = {FLASH}({called})"
        return ast.parse(text).body, False
    options = [f"attn_mask={mask}"] * (mask != "None") + [f"is_causal={causal}"] * (
        causal == "True"
    )
    options += [f"scale={scale}"] * (scale != "None") + ["enable_gqa=True"] * (grouped == "True")
    call = f"nn.functional.{LIBRARY_NAME}({', '.join([query, key, value, *options])})"
    # Its kernels write (batch, rows, heads, columns) in memory, so that the copy is none; what reads it relies on that.
    layout = f"{target} = {target}.transpose(1, 2).contiguous().transpose(1, 2)"
    return ast.parse(f"{target} = {call}\n{layout}").body, True
