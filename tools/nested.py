"""Tensors in nested tuples, lists and dicts, and arguments in either. Text for JSON is in tools/wire.py, numbers of
tensors in a trace in tools/tracing/trace.py.
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


def constructor_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """What get_init_inputs gives, as positional and named arguments of Model: of a list, a dictionary of names, or
    `[args, kwargs]`, as some forks of KernelBench write.
    """
    if isinstance(given, dict):
        return [], dict(given)
    pair = isinstance(given, list | tuple) and len(given) == 2
    if pair and isinstance(given[0], list | tuple) and isinstance(given[1], dict):
        return list(given[0]), dict(given[1])
    return list(given), {}
