"""Recurrent layers as loops over their steps: what torch does in one call of C++.

The products with the inputs of all steps are made at once, before the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.policies.inductor.functions.linear_layer import linear
from kernelwright.policies.inductor.refusing import DROPOUT_ADVICE, DraftRefused
from kernelwright.policies.inductor.tracing.loops import over_steps

Cell = Callable[[Any, dict[str, Any], Any, Any], dict[str, Any]]
"""Products of the input, what is carried, recurrent weight and bias -> what is carried on; `h` is the output."""


def recurrent_functions() -> dict[str, Any]:
    """Name in torch._VF -> the function."""
    return {
        "gru_cell": gru_cell, "lstm_cell": lstm_cell, "rnn_tanh_cell": _plain_cell("tanh"),
        "rnn_relu_cell": _plain_cell("relu"), "lstm": lstm, "gru": _layers("h", _gru_step),
        "rnn_tanh": _layers("h", _plain_step("tanh")), "rnn_relu": _layers("h", _plain_step("relu")),
    }  # fmt: skip


def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Writes `torch.gru_cell` as linear layers and gates; returns the new state."""
    return _gru_step(linear(x, w_ih, b_ih), {"h": h}, w_hh, b_hh)["h"]


def lstm_cell(
    x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, Any]:
    """Writes `torch.lstm_cell` as linear layers and gates; returns the hidden and the cell state."""
    made = _lstm_step(linear(x, w_ih, b_ih), {"h": state[0], "c": state[1]}, w_hh, b_hh)
    return made["h"], made["c"]


def _plain_cell(function: str) -> Any:
    step = _plain_step(function)

    def cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        return step(linear(x, w_ih, b_ih), {"h": h}, w_hh, b_hh)["h"]

    return cell


def _gru_step(own: Any, state: dict[str, Any], weight: Any, bias: Any) -> dict[str, Any]:
    import torch

    h = state["h"]
    size, kept = h.shape[-1], linear(h, weight, bias)
    reset = torch.sigmoid(own[..., :size] + kept[..., :size])
    update = torch.sigmoid(own[..., size : 2 * size] + kept[..., size : 2 * size])
    new = torch.tanh(own[..., 2 * size :] + reset * kept[..., 2 * size :])
    return {"h": new + update * (h - new)}


def _lstm_step(own: Any, state: dict[str, Any], weight: Any, bias: Any) -> dict[str, Any]:
    import torch

    h, c = state["h"], state["c"]
    size, gates = c.shape[-1], own + linear(h, weight, bias)
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
    return lambda own, state, weight, bias: {"h": apply(own + linear(state["h"], weight, bias))}


def lstm(x: Any, hidden: Any, *rest: Any) -> tuple[Any, Any, Any]:
    """Writes `torch.lstm` as layers of steps; returns the outputs and both final states."""
    made = _layers("hc", _lstm_step)(x, hidden, *rest)
    return made[0], made[1], made[2]


def _layers(carried: str, step: Cell) -> Any:
    """The whole of a recurrent layer: `carried` is one letter for each tensor of its state."""

    def layers(x: Any, hidden: Any, weights: Any, has_biases: bool, count: int, dropout: float, train: bool,
        both_ways: bool, batch_first: Any = None) -> tuple[Any, ...]:  # fmt: skip
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
        each = len(weights) // (count * (2 if both_ways else 1))
        last: list[dict[str, Any]] = []
        for _ in range(count):
            outputs = []
            for backwards in (False, True) if both_ways else (False,):
                place = len(last)
                own = weights[place * each : (place + 1) * each]
                if each not in (2, 4):
                    raise DraftRefused(
                        "a recurrent layer with projections (proj_size) has no kernel"
                    )
                b_ih, b_hh = (own[2], own[3]) if has_biases else (None, None)
                start = {name: s[place] for name, s in zip(carried, states, strict=True)}
                made, end = _direction(x, start, step, own[0], own[1], b_ih, b_hh, backwards)
                outputs.append(made)
                last.append(end)
            x = torch.cat(outputs, -1) if both_ways else outputs[0]
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack([end[name] for end in last]) for name in carried))

    return layers


def _direction(x: Any, start: dict[str, Any], step: Cell, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any,
    backwards: bool) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """One layer in one direction over x [steps, batch, width]."""
    steps = x.shape[0]
    own = linear(x, w_ih, b_ih)

    def body(at: Any, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        after = step(own[steps - 1 - at if backwards else at], state, w_hh, b_hh)
        return after, {"outputs": after["h"]}

    end, made = over_steps(body, steps, start)
    return (made["outputs"].flip(0) if backwards else made["outputs"]), end
