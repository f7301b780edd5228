"""State of a model: the buffers which a call changes, and tensors held as plain attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_CALLS = "num_batches_tracked"
"""Buffer in which a batch norm counts its calls in training."""


class BuffersAsTheyWere:
    """The contents of a model's buffers at the time of construction, to restore after calls outside of a verdict."""

    def __init__(self, model: torch.nn.Module, names: Collection[str]) -> None:
        """names: buffers changed by forward, as `Reference.changing`."""
        self._model = model
        named = model.named_buffers(remove_duplicate=False)
        self._held = [(n, b, b.clone()) for n, b in named if n in names]

    def put_back(self) -> None:
        """Restores the buffers' contents in the same tensors."""
        for name, buffer, copy in self._held:
            buffer.copy_(copy)
            put_buffer(self._model, name, buffer)


def moved(model: torch.nn.Module, device: str) -> Any:
    """Returns the model on the device. A model that is there already is not touched: tensors
    without data cannot be moved.
    """
    import torch

    parts = (*model.parameters(), *model.buffers())
    return model if all(part.device == torch.device(device) for part in parts) else model.to(device)


def move_attributes(model: torch.nn.Module, device: str) -> Any:
    """Moves tensors held as plain attributes of modules to the device: `to` leaves them unmoved."""
    import torch

    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                setattr(module, name, value.to(device))
    return model


def put_buffer(model: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Replaces a buffer by another tensor."""
    owner, _, last = name.rpartition(".")
    model.get_submodule(owner)._buffers[last] = value


def changed_buffers(held: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """Returns the buffers changed by a call, and the running statistics of every layer which
    counted the call: a mean that happens to stay equal is chance.
    """
    changed = {n for n, b in held.items() if not _same(now.get(n), b)}
    counted = [n.removesuffix(_CALLS) for n in changed if n.endswith(_CALLS)]
    statistics = {f"{layer}{name}" for layer in counted for name in ("running_mean", "running_var")}
    return frozenset(changed | (statistics & held.keys()))


def has_form_of(now: torch.Tensor | None, before: torch.Tensor) -> bool:
    """Returns whether a buffer still exists with its shape and dtype."""
    return now is not None and now.shape == before.shape and now.dtype == before.dtype


def _same(now: torch.Tensor | None, before: torch.Tensor) -> bool:
    """Returns whether two tensors are equal element for element, NaN equal to NaN."""
    if now is None or not has_form_of(now, before):
        return False
    return (
        bool(((now == before) | ((now != now) & (before != before))).all()) if now.numel() else True
    )
