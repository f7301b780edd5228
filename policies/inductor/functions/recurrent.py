"""Recurrent layers as loops over time steps, instead of torch's C++ calls.

The products with the inputs of all steps are computed before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.functions.linear_layer import linear
from kernelwright.policies.inductor.refusing import DROPOUT_ADVICE, DraftRefused
from kernelwright.policies.inductor.tracing.loops import over_steps

if TYPE_CHECKING:
    import torch

Cell = Callable[[Any, dict[str, Any], Any, Any], dict[str, Any]]
"""Step of a recurrent layer: (input product, state, recurrent weight, bias) -> next state, whose
`h` is the output.
"""


def recurrent_functions() -> dict[str, Any]:
    """Name in torch._VF -> the function."""
    return {
        "gru_cell": gru_cell, "lstm_cell": lstm_cell, "rnn_tanh_cell": _plain_cell("tanh"),
        "rnn_relu_cell": _plain_cell("relu"), "lstm": lstm, "gru": _layers("h", _gru_step),
        "rnn_tanh": _layers("h", _plain_step("tanh")), "rnn_relu": _layers("h", _plain_step("relu")),
    }  # fmt: skip


def gru_cell(
    x: torch.Tensor,
    h: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    """Writes `torch.gru_cell` as linear layers and gates; returns the new state."""
    return _gru_step(linear(x, w_ih, b_ih), {"h": h}, w_hh, b_hh)["h"]


def lstm_cell(
    x: torch.Tensor,
    state: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> tuple[Any, Any]:
    """Writes `torch.lstm_cell` as linear layers and gates; returns the hidden and the cell state."""
    new_state = _lstm_step(linear(x, w_ih, b_ih), {"h": state[0], "c": state[1]}, w_hh, b_hh)
    return new_state["h"], new_state["c"]


def _plain_cell(function: str) -> Any:
    step = _plain_step(function)

    def cell(
        x: torch.Tensor,
        h: torch.Tensor,
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None = None,
        b_hh: torch.Tensor | None = None,
    ) -> Any:
        return step(linear(x, w_ih, b_ih), {"h": h}, w_hh, b_hh)["h"]

    return cell


def _gru_step(
    projected: torch.Tensor, state: dict[str, Any], weight: torch.Tensor, bias: torch.Tensor | None
) -> dict[str, Any]:
    import torch

    h = state["h"]
    size, recurrent = h.shape[-1], linear(h, weight, bias)
    reset = torch.sigmoid(projected[..., :size] + recurrent[..., :size])
    update = torch.sigmoid(projected[..., size : 2 * size] + recurrent[..., size : 2 * size])
    new = torch.tanh(projected[..., 2 * size :] + reset * recurrent[..., 2 * size :])
    return {"h": new + update * (h - new)}


def _lstm_step(
    projected: torch.Tensor, state: dict[str, Any], weight: torch.Tensor, bias: torch.Tensor | None
) -> dict[str, Any]:
    import torch

    h, c = state["h"], state["c"]
    size, gates = c.shape[-1], projected + linear(h, weight, bias)
    put, forget = torch.sigmoid(gates[..., :size]), torch.sigmoid(gates[..., size : 2 * size])
    candidate, out = (
        torch.tanh(gates[..., 2 * size : 3 * size]),
        torch.sigmoid(gates[..., 3 * size :]),
    )
    c = forget * c + put * candidate
    return {"h": out * torch.tanh(c), "c": c}


def _plain_step(function: str) -> Cell:
    import torch

    apply = getattr(torch, function)
    return lambda projected, state, weight, bias: {
        "h": apply(projected + linear(state["h"], weight, bias))
    }


def lstm(
    x: torch.Tensor, hidden: torch.Tensor | Sequence[torch.Tensor], *arguments: Any
) -> tuple[Any, Any, Any]:
    """Writes `torch.lstm` as layers of steps; returns the outputs and both final states."""
    results = _layers("hc", _lstm_step)(x, hidden, *arguments)
    return results[0], results[1], results[2]


def _layers(carried: str, step: Cell) -> Any:
    """Returns a whole recurrent layer. `carried`: a letter for each tensor of its state."""

    def layers(
        x: torch.Tensor,
        hidden: torch.Tensor | Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        count: int,
        dropout: float,
        train: bool,
        both_ways: bool,
        batch_first: bool | None = None,
    ) -> tuple[Any, ...]:
        """Output, then the last state of all layers. Raises DraftRefused for packed sequences and for dropout."""
        import torch

        if not isinstance(batch_first, bool):
            raise DraftRefused("a packed sequence has sizes that depend on data")
        if dropout and train and count > 1:
            raise DraftRefused(
                "dropout between recurrent layers draws random numbers", advice=DROPOUT_ADVICE
            )
        states = hidden if isinstance(hidden, tuple | list) else (hidden,)
        x = x.transpose(0, 1) if batch_first else x
        # torch passes a flat list: per layer and direction two weights, then two biases.
        each = len(weights) // (count * (2 if both_ways else 1))
        last: list[dict[str, Any]] = []
        for _ in range(count):
            outputs = []
            for backwards in (False, True) if both_ways else (False,):
                layer_index = len(last)
                layer_weights = weights[layer_index * each : (layer_index + 1) * each]
                if each not in (2, 4):
                    raise DraftRefused(
                        "a recurrent layer with projections (proj_size) has no kernel"
                    )
                b_ih, b_hh = (layer_weights[2], layer_weights[3]) if has_biases else (None, None)
                start = {name: s[layer_index] for name, s in zip(carried, states, strict=True)}
                layer_outputs, end = _direction(
                    x, start, step, layer_weights[0], layer_weights[1], b_ih, b_hh, backwards
                )
                outputs.append(layer_outputs)
                last.append(end)
            x = torch.cat(outputs, -1) if both_ways else outputs[0]
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack([end[name] for end in last]) for name in carried))

    return layers


def _direction(
    x: torch.Tensor,
    start: dict[str, Any],
    step: Cell,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None,
    b_hh: torch.Tensor | None,
    backwards: bool,
) -> tuple[Any, dict[str, Any]]:
    """Runs a layer in one direction over x [steps, batch, width]."""
    steps = x.shape[0]
    # The input products of all steps at once.
    projected = linear(x, w_ih, b_ih)

    def body(at: int, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        after = step(projected[steps - 1 - at if backwards else at], state, w_hh, b_hh)
        return after, {"outputs": after["h"]}

    end, stacked = over_steps(body, steps, start)
    return (stacked["outputs"].flip(0) if backwards else stacked["outputs"]), end
