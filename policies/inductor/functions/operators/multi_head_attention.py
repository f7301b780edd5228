"""The function behind `nn.MultiheadAttention`, with its projections read in place.

torch's own function copies query, key and value into an order (length, batch, columns) and from
there into heads. The attention of a draft reads heads by their strides, without a copy:
the packed projection [batch, length, 3 * columns] is seen as [batch, length, 3, heads, head size].
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def multi_head_attention(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `torch.nn.functional.multi_head_attention_forward` without copies between its
    projections and its attention.

    plain: torch's own function. It remains for weights that are returned, for added keys, for
    separate projections, and for masks of paddings or of single heads.
    """
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def attend(*args: Any, **named: Any) -> tuple[Any, Any]:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        call = SimpleNamespace(**bound.arguments)
        return _attended(call) if _has_common_form(call) else plain(*args, **named)

    return attend


def _has_common_form(call: SimpleNamespace) -> bool:
    """Whether a call has batches, packed projections, no added keys, no returned weights, and at
    most one mask (length, keys).
    """
    special = call.need_weights or call.add_zero_attn or call.use_separate_proj_weight
    absent = (call.bias_k, call.bias_v, call.static_k, call.static_v, call.key_padding_mask)
    if special or any(tensor is not None for tensor in absent):
        return False
    if call.attn_mask is None:
        return call.query.dim() == 3 and not call.is_causal
    return call.query.dim() == 3 and call.attn_mask.dim() == 2


def _attended(call: SimpleNamespace) -> tuple[Any, None]:
    """Returns the result in the order (length, batch, columns) of the arguments, and no weights."""
    import torch.nn.functional as functional

    query = call.query
    mask = None if call.is_causal or call.attn_mask is None else _added(call.attn_mask, query.dtype)
    # Rows are projected in the order that they have in memory.
    batch_first = bool(query.transpose(0, 1).is_contiguous())
    heads, keys, values = _projected(call, batch_first)
    attended = functional.scaled_dot_product_attention(
        heads,
        keys,
        values,
        attn_mask=mask,
        dropout_p=call.dropout_p if call.training else 0.0,
        is_causal=call.is_causal,
    )
    order = (0, 2, 1, 3) if batch_first else (2, 0, 1, 3)
    rows = query.transpose(0, 1) if batch_first else query
    joined = attended.permute(order).reshape(rows.shape)
    out = functional.linear(joined, call.out_proj_weight, call.out_proj_bias)
    return (out.transpose(0, 1) if batch_first else out), None


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns an additive mask (length, keys) for scores: True of a boolean mask hides a key."""
    import torch

    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


def _projected(call: SimpleNamespace, batch_first: bool) -> list[torch.Tensor]:
    """Returns query, key and value as (batch, heads, length, head size), views of as few products
    as there are different inputs.
    """
    import torch.nn.functional as functional

    weight, bias, heads = call.in_proj_weight, call.in_proj_bias, call.num_heads
    columns = call.query.shape[-1]
    inputs = [call.query, call.key, call.value]
    order = (0, 2, 1, 3) if batch_first else (1, 2, 0, 3)
    parts: list[torch.Tensor] = []
    while len(parts) < len(inputs):
        first = len(parts)
        # Adjacent equal inputs share a product: self-attention has one, cross-attention two.
        count = 1
        while first + count < len(inputs) and inputs[first + count] is inputs[first]:
            count += 1
        rows = inputs[first].transpose(0, 1) if batch_first else inputs[first]
        if count < len(inputs):
            shared = slice(first * columns, (first + count) * columns)
            product = functional.linear(
                rows, weight[shared], None if bias is None else bias[shared]
            )
        else:
            product = functional.linear(rows, weight, bias)
        wide = product.view(*rows.shape[:2], count, heads, columns // heads)
        parts += [wide.select(2, number).permute(order) for number in range(count)]
    return parts
