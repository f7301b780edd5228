"""Operators that torch has on a GPU alone, as a CPU computes them: host code that is traced on a pretended GPU asks for
them. First results only where nobody reads more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _lstm_cell(
    input_gates: Any, hidden_gates: Any, cell: Any, input_bias: Any = None, hidden_bias: Any = None
) -> Any:
    """aten._thnn_fused_lstm_cell: hidden state, cell state, activated gates."""
    import torch

    gates = _sum(input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1)
    enter, forget, leave = (gates[i].sigmoid() for i in (0, 1, 3))
    candidate = gates[2].tanh()
    new_cell = forget * cell + enter * candidate
    return leave * new_cell.tanh(), new_cell, torch.cat([enter, forget, candidate, leave], 1)


def _gru_cell(
    input_gates: Any,
    hidden_gates: Any,
    hidden: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
) -> Any:
    """aten._thnn_fused_gru_cell: hidden state, and what a backward pass would need."""
    import torch

    given = _sum(input_gates, input_bias).chunk(3, 1)
    kept = _sum(hidden_gates, hidden_bias).chunk(3, 1)
    reset, update = (given[0] + kept[0]).sigmoid(), (given[1] + kept[1]).sigmoid()
    new = (given[2] + reset * kept[2]).tanh()
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden, kept[2]], 1)


def _sum(*terms: Any) -> Any:
    given = [t for t in terms if t is not None]
    return sum(given[1:], given[0])


def _flash(
    query: Any,
    key: Any,
    value: Any,
    dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    scale: Any = None,
    **__: Any,
) -> Any:
    return _attention(query, key, value, None, dropout, causal, scale, 9)


def _efficient(
    query: Any, key: Any, value: Any, bias: Any, compute_log_sumexp: bool, dropout: float = 0.0, causal: bool = False,
    *, scale: Any = None
) -> Any:  # fmt: skip
    return _attention(query, key, value, bias, dropout, causal, scale, 4)


def _cudnn(
    query: Any, key: Any, value: Any, bias: Any, compute_log_sumexp: bool, dropout: float = 0.0, causal: bool = False,
    *_: Any,
    scale: Any = None, **__: Any,
) -> Any:  # fmt: skip
    return _attention(query, key, value, bias, dropout, causal, scale, 9)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    dropout: float,
    causal: bool,
    scale: Any,
    results: int,
) -> Any:
    """The output, and an empty tensor for each of the other results, which serve a backward pass."""
    import torch

    made, _ = torch.ops.aten._scaled_dot_product_attention_math.default(
        query, key, value, bias, dropout, causal, scale=scale
    )
    return (made, *(torch.empty(0) for _ in range(results - 1)))


STAND_INS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_gru_cell": _gru_cell,
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_cudnn_attention": _cudnn,
}
"""Operators that stand in for those without a CPU implementation, by the operator's name."""
