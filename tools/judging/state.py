"""Persistent state of models and candidates by name: parameters and buffers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.report import Failure, Fault, clean_text
from kernelwright.tools.trace.trace import Trace

if TYPE_CHECKING:
    import torch


def state_of(model: torch.nn.Module) -> dict[str, Any]:
    """Returns parameters and buffers by dotted name; tied ones under each of their names."""
    return dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )


def listed_state(trace: Trace) -> list[dict[str, Any]]:
    """Returns the candidate's parameters and buffers in the form of
    `tools.references.weights.match_by_name`."""
    return [
        {"name": n, "kind": "parameter" if n in trace.parameters else "buffer", "shape": list(trace.shapes.get(n, ())),
        "dtype": trace.dtypes.get(n, "")}
        for n in trace.state
    ]  # fmt: skip


def buffers_of(model: torch.nn.Module, trace: Trace, paired: dict[str, str]) -> dict[str, str]:
    """Maps the candidate's buffers to the reference's, for those that are not paired yet.

    By name and shape; if no name agrees, in order, provided all shapes and dtypes agree.
    """
    paired_names = set(paired.values())
    ours = {n: _form(t.shape, t.dtype) for n, t in model.named_buffers() if n not in paired_names}
    theirs = {n: (tuple(trace.shapes.get(n, ())), trace.dtypes.get(n, "")) for n in trace.state
              if n not in trace.parameters and n not in paired}  # fmt: skip
    if named := {n: n for n, form in theirs.items() if ours.get(n) == form}:
        return named
    same = ours and list(ours.values()) == list(theirs.values())
    return dict(zip(theirs, ours, strict=True)) if same else {}


def _form(shape: Sequence[int], dtype: torch.dtype) -> tuple[tuple[int, ...], str]:
    return tuple(shape), str(dtype).removeprefix("torch.")


def changed_weight(
    model: torch.nn.Module, updated: Collection[str], weights: Mapping[str, tuple[str, Any]]
) -> Failure | None:
    """Returns the failure for a changed parameter, or a changed buffer that the reference does not
    update.

    weights: candidate's name -> reference's name, and the memory of both sides.
    """
    state, parameters = state_of(model), dict(model.named_parameters())
    for theirs, (ours, shared) in weights.items():
        if ours not in updated and not same_bits(shared.tensor, state[ours].detach()):
            kind = "parameter" if ours in parameters else "buffer"
            return Failure(
                fault=Fault.MUTATION, message=f"the call changes the {kind} {theirs[:80]}"
            )
    return None


def lacks_buffer(name: str, model: torch.nn.Module) -> Failure:
    """Returns the failure for a missing buffer that the reference updates."""
    buffer = dict(model.named_buffers())[name]
    shape, dtype = _form(buffer.shape, buffer.dtype)
    message = (
        f"the reference's forward updates its buffer {clean_text(name, 80)}, and ModelNew holds no buffer of that name "
        f"with shape {shape} and type {dtype}: keep one, and update it in forward as the reference does"
    )
    return Failure(fault=Fault.MUTATION, message=message)


def in_buffer(failure: Failure, name: str) -> Failure:
    """Returns the failure with its message prefixed by the buffer's name."""
    return failure.with_(
        message=f"the buffer {clean_text(name, 80)} after a call: {failure.message}"
    )
