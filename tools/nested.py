"""Tensors in nested tuples, lists and dicts. Text for JSON is in tools/wire.py, numbers of tensors in a trace in
tools/tracing/trace.py.
"""

from __future__ import annotations

from typing import Any


def tensors_of(value: Any, wrapped_in: str = "") -> list[Any]:
    """Every tensor of a nest, in order.

    wrapped_in: the attribute that holds the tensor of what is neither a tensor nor a nest; such values are left out
    where no name is given.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for one in value for tensor in tensors_of(one, wrapped_in)]
    inner = getattr(value, wrapped_in, None) if wrapped_in else None
    return [] if inner is None else tensors_of(inner, wrapped_in)
