"""What a reply to one call tells before any number is looked at: form, aliases, margins, changed inputs and weights."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tools.compare import Described, describe, form
from tools.conversation import forged
from tools.exchange import MARGIN_BYTE, Exchange
from tools.results import Failed, Failure, Fault, clean_text
from tools.situation import Expected, same_bits


def check_form(exchange: Exchange, reply: dict[str, Any], expected: Expected) -> None:
    """Count, type, shape, dtype, device, layout, aliasing. Raises Failed."""
    wanted = exchange.returned(expected.eager)
    try:
        listed = [Described.model_validate(o) for o in reply["outputs"]]
        count, aliases = int(reply["count"]), [dict(o.get("alias") or {}) for o in reply["outputs"]]
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise Failed(forged("outputs are not described as they should be")) from error
    if count != len(listed):
        raise Failed(
            Failure(fault=Fault.OUTPUT, message=f"forward returns {count} outputs, the reference {len(wanted)}")
        )
    if failure := form(listed, [describe(o) for o in wanted]):
        raise Failed(failure)
    for number, alias in enumerate(aliases):
        if alias and alias.get("input") != exchange.situation.aliases[number]:
            what = clean_text(" ".join(f"{k} {v}" for k, v in alias.items()), 60)
            message = f"output {number} shares memory with {what}; the reference's does not"
            raise Failed(Failure(fault=Fault.ALIAS, message=message))
    if not all(reply["copied"]):
        raise Failed(forged("an output of the right form was not copied"))


def check_side_effects(exchange: Exchange, reply: dict[str, Any], expected: Expected) -> None:
    """Writes outside of tensors, inputs and weights that are not as they were. Raises Failed."""
    import torch

    tensors = [(i, v) for i, v in enumerate(expected.inputs) if isinstance(v, torch.Tensor)]
    for shared, (index, value) in zip(exchange.inputs, tensors, strict=True):
        if not shared.margins_hold(MARGIN_BYTE):
            raise Failed(Failure(fault=Fault.OUT_OF_BOUNDS, message=f"a kernel writes outside input {index}"))
        if index not in exchange.situation.mutated and not same_bits(shared.tensor, value):
            message = f"input {index} is changed by the call, and the reference does not change it"
            raise Failed(Failure(fault=Fault.MUTATION, message=message))
    if reply.get("weights_changed"):
        message = f"the call changes the parameter {clean_text(reply['weights_changed'][0], 80)}"
        raise Failed(Failure(fault=Fault.MUTATION, message=message))
    if reply.get("written_outside"):
        message = "a kernel writes outside a tensor that the candidate allocated: a missing mask on a store"
        raise Failed(Failure(fault=Fault.OUT_OF_BOUNDS, message=message))
