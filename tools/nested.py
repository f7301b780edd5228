"""Tensors in nested tuples, lists and dicts, and arguments in either. Text for JSON is in
tools/wire.py, numbers of tensors in a trace in tools/trace/trace.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def tensors_of(value: object, wrapped_in: str = "") -> list[Any]:
    """Returns every tensor of a nest, in order.

    wrapped_in: attribute with the tensor of values which are neither tensors nor nests; without a
    name such values are skipped.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for element in value for tensor in tensors_of(element, wrapped_in)]
    inner = getattr(value, wrapped_in, None) if wrapped_in else None
    return [] if inner is None else tensors_of(inner, wrapped_in)


def tensors_of_model(model: torch.nn.Module) -> list[Any]:
    """Returns the parameters and buffers of a model, and tensors in plain attributes of its modules."""
    import torch

    held = [
        v
        for module in model.modules()
        for v in vars(module).values()
        if isinstance(v, torch.Tensor)
    ]
    return [*model.parameters(), *model.buffers(), *held]


Form = Any
"""A nest of lists, tuples and dictionaries with the place of a leaf, a whole number, in each leaf's stead."""


def take_apart(arguments: Sequence[Any]) -> tuple[list[Any], Form]:
    """Flattens the arguments of a call; returns the leaves, and the nesting. Only arguments with
    tensors inside lists, tuples or dictionaries are flattened; every other argument is a leaf,
    including values of derived classes (a named tuple), which could not be rebuilt.
    """
    leaves: list[Any] = []

    def form_of(value: Any) -> Form:
        if type(value) is dict and all(type(key) is str for key in value) and tensors_of(value):
            return {key: form_of(item) for key, item in value.items()}
        if type(value) in (list, tuple) and tensors_of(value):
            return type(value)(form_of(item) for item in value)
        leaves.append(value)
        return len(leaves) - 1

    return leaves, [form_of(value) for value in arguments]


def put_together(form: Form, leaves: Sequence[Any]) -> Any:
    """Inverts `take_apart`, with new lists and dictionaries."""
    if isinstance(form, dict):
        return {key: put_together(item, leaves) for key, item in form.items()}
    if isinstance(form, list | tuple):
        return type(form)(put_together(item, leaves) for item in form)
    return leaves[form]


def leaf_names(form: Form, prefix: str = "") -> list[str]:
    """Returns the position of each leaf, in order: `0`, or `0[1]` and `0[mask]` inside an
    argument.
    """
    if isinstance(form, int):
        return [prefix]
    entries = form.items() if isinstance(form, dict) else enumerate(form)
    return [
        name
        for key, item in entries
        for name in leaf_names(item, f"{prefix}[{key}]" if prefix else str(key))
    ]
