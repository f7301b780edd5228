"""Attention as a single operator of a traced graph, instead of two products and a softmax.

A draft then launches a flash kernel, or calls a library, for the whole operator. The operator has
four axes (batch,
heads, rows, columns). Its result lies in memory as (batch, rows, heads, columns), as in torch's
kernels: heads are
joined afterwards without a copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.functions.indexing import repeat_interleave
from kernelwright.policies.inductor.refusing import DROPOUT_ADVICE, DraftRefused

if TYPE_CHECKING:
    import torch

ATTENTION_OPERATOR = "kernelwright::attention"
SCHEMA = (
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float? scale, bool grouped, "
    "bool library, float fill, float cap, bool zero_rows) -> Tensor"
)
MAX_HEAD_SIZE = 256
"""Columns of a head of the flash kernel: wider ones spill registers, and torch's own flash kernel ends there, too."""


@dataclass(frozen=True)
class AttentionForm:
    """What an attention does besides its products."""

    scale: float | None = None
    """Factor of the products; None: 1 / sqrt(head size)."""
    grouped: bool = False
    """Whether several heads of queries share a head of keys."""
    fill: float = -math.inf
    """Score of a key hidden by a boolean mask."""
    cap: float = 0.0
    """c of a soft cap c * tanh(score / c); 0: none."""
    zero_rows: bool = True
    """A row without visible keys is zero, as in torch's safe softmax; otherwise NaN."""

    def arguments(
        self, query: object, key: object, value: object, mask: object, causal: bool
    ) -> tuple[object, ...]:
        """Returns the arguments of the operator."""
        flags = (self.fill, self.cap, self.zero_rows)
        return query, key, value, mask, causal, self.scale, self.grouped, uses_library(), *flags


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Writes `torch.nn.functional.scaled_dot_product_attention` as a single operator if a kernel
    or library has it.
    """
    if dropout_p:
        raise DraftRefused(
            "dropout of scaled_dot_product_attention draws random numbers", advice=DROPOUT_ADVICE
        )
    if has_kernel(query, value):
        return _operator_call(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return _composed(query, key, value, attn_mask, is_causal, scale, enable_gqa)


def uses_library() -> bool:
    """Whether products and attention are a library's in the traced draft (share mode)."""
    from torch._inductor import config

    return not config.triton.native_matmul


def has_kernel(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the draft has a kernel, or a call of the library, for an attention of these dtypes and sizes."""
    import torch

    if query.dim() < 2 or query.dtype == torch.float64:
        return False
    if uses_library():
        return True
    # In fp32 large products are made of parts on tensor cores, which a flash kernel does not do.
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return is_half and max(_hint(query.shape[-1]), _hint(value.shape[-1])) <= MAX_HEAD_SIZE


def _operator_call(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Any:
    """Calls the operator on four axes. Raises DraftRefused for operands with more batch axes than heads."""
    import torch

    *leading, rows, _ = query.shape
    if mask is not None:
        mask = _four_axes(mask, query.dim())
    query, key, value = (_four_axes(tensor, query.dim()) for tensor in (query, key, value))
    # The default scale is left to the kernel, which computes it from the head size.
    if scale is not None and is_default_scale(scale, query.shape[-1]):
        scale = None
    if isinstance(scale, torch.SymFloat):
        query, scale = query * scale, 1.0
    batch = torch.broadcast_shapes(query.shape[:1], key.shape[:1], value.shape[:1])
    heads = query.shape[1:2]
    if not grouped:
        heads = torch.broadcast_shapes(heads, key.shape[1:2], value.shape[1:2])
        key = key.expand(*batch, *heads, -1, -1)
        value = value.expand(*batch, *heads, -1, -1)
    query = query.expand(*batch, *heads, -1, -1)
    factor = None if scale is None else float(scale)
    form = AttentionForm(scale=factor, grouped=grouped)
    out = attention_operator()(*form.arguments(query, key, value, mask, causal))
    if len(leading) == 2:
        return out
    return out.reshape(*leading, rows, out.shape[-1])


def _four_axes(tensor: torch.Tensor, rank: int) -> Any:
    """(batch, heads, rows, columns) of a tensor that belongs to a query of `rank` axes.

    A query of three axes has a batch and no heads; a mask may lack axes of its query.
    """
    while tensor.dim() < rank:
        tensor = tensor.unsqueeze(0)
    if rank == 2:
        return tensor.unsqueeze(0).unsqueeze(0)
    if rank == 3:
        return tensor.unsqueeze(1)
    return tensor if rank == 4 else tensor.flatten(0, rank - 4)


def is_default_scale(scale: float, head_size: int) -> bool:
    """Returns whether a factor is 1 / sqrt(head size), in which case the head size can stay a
    symbol.
    """
    return math.isclose(_hint(scale), _hint(head_size) ** -0.5, rel_tol=1e-6)


def _hint(number: float | torch.SymInt | torch.SymFloat) -> float:
    """Returns the value of a number or of a symbol at the problem's own sizes."""
    node = getattr(number, "node", None)
    return float(number if node is None else node.hint)


_library: list[Any] = []


def attention_operator() -> Any:
    """Returns the operator, which is defined once a process."""
    import torch

    if not _library:
        _library.append(torch.library.Library("kernelwright", "FRAGMENT"))
        _library[0].define(SCHEMA)
        torch.library.register_fake(ATTENTION_OPERATOR, _result, lib=_library[0])
    return torch.ops.kernelwright.attention.default


def _result(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
    library: bool,
    fill: float,
    cap: float,
    zero_rows: bool,
) -> Any:
    batch, heads, rows, _ = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)


def _composed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Any:
    """softmax(q k^T * scale + mask) v by products and a softmax."""
    import torch

    if grouped:
        key = repeat_interleave(key, query.shape[-3] // key.shape[-3], -3)
        value = repeat_interleave(value, query.shape[-3] // value.shape[-3], -3)
    factor = 1 / torch.sym_sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if causal:
        rows = torch.arange(query.shape[-2], device=query.device)[:, None]
        columns = torch.arange(key.shape[-2], device=query.device)[None, :]
        scores = scores.masked_fill(columns > rows, -math.inf)
    if mask is None:
        return torch.softmax(scores, dim=-1) @ value
    if mask.dtype == torch.bool:  # added, as eager does: NaN in a score that is masked stays NaN
        mask = torch.where(mask, 0.0, -math.inf).to(scores.dtype)
    scores = scores + mask
    empty = (
        scores.amax(-1, keepdim=True) == -math.inf
    )  # a row that sees nothing is zero in eager (_safe_softmax)
    weights = torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)
    return weights @ value
