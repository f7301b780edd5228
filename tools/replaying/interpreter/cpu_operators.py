"""CPU versions of operators which torch implements on a GPU only; host code traced on a pretended
GPU calls them.

Only the first result is computed if the others serve a backward pass alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> Any:
    """aten._thnn_fused_lstm_cell: hidden state, cell state, activated gates."""
    import torch

    gates = _sum(input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1)
    enter, forget, leave = (gates[i].sigmoid() for i in (0, 1, 3))
    candidate = gates[2].tanh()
    new_cell = forget * cell + enter * candidate
    return leave * new_cell.tanh(), new_cell, torch.cat([enter, forget, candidate, leave], 1)


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> Any:
    """Computes aten._thnn_fused_gru_cell: hidden state, and the workspace of the backward pass."""
    import torch

    input_parts = _sum(input_gates, input_bias).chunk(3, 1)
    hidden_parts = _sum(hidden_gates, hidden_bias).chunk(3, 1)
    reset = (input_parts[0] + hidden_parts[0]).sigmoid()
    update = (input_parts[1] + hidden_parts[1]).sigmoid()
    new = (input_parts[2] + reset * hidden_parts[2]).tanh()
    return new + update * (hidden - new), torch.cat(
        [reset, update, new, hidden, hidden_parts[2]], 1
    )


def _sum(*terms: Any) -> Any:
    present = [t for t in terms if t is not None]
    return sum(present[1:], present[0])


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    scale: float | None = None,
    **__: Any,
) -> Any:
    output = _attention(query, key, value, None, dropout, causal, scale=scale)
    return (output, *_unused_results(8))


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    *options: Any,
    scale: float | None = None,
) -> Any:
    output = _attention(query, key, value, bias, *options, scale=scale)
    return (output, *_unused_results(3))


def _cudnn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    *options: Any,
    scale: float | None = None,
    **_: Any,
) -> Any:
    output = _attention(query, key, value, bias, *options[:2], scale=scale)
    return (output, *_unused_results(8))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    *options: Any,
    scale: float | None,
) -> torch.Tensor:
    """Computes attention. options: dropout probability and whether the mask is causal."""
    import torch

    attention = torch.ops.aten._scaled_dot_product_attention_math.default
    output, _ = attention(query, key, value, bias, *options, scale=scale)
    return output


def _unused_results(count: int) -> list[torch.Tensor]:
    """Returns empty tensors in place of the results which serve a backward pass."""
    import torch

    return [torch.empty(0) for _ in range(count)]


STAND_INS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_gru_cell": _gru_cell,
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_cudnn_attention": _cudnn,
}
"""CPU implementations by the name of the operator."""
