"""Converts values to JSON between the judge and a candidate's process, without pickle, which
would run the sender's code.

Tensors are converted by `tensor` (a shape, a shared buffer); everything else is a plain tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Json = Any


class WireError(ValueError):
    """A value that cannot travel."""


def describe(value: object, tensor: Callable[[Any], Json]) -> Json:
    """A JSON tree of None, bool, int, float, str, list, tuple, dict (string keys), torch.dtype,
    torch.device, torch.Size and tensors.

    Raises: WireError for any other type.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return {"tensor": tensor(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [describe(v, tensor) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [describe(v, tensor) for v in value]}
    if isinstance(value, dict):
        return {"dict": {str(k): describe(v, tensor) for k, v in value.items()}}
    if isinstance(value, torch.dtype | torch.device):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    raise WireError(
        f"a value of type {type(value).__name__} cannot be sent to a candidate: use numbers, text, lists and tensors"
    )


def restore(tree: Json, tensor: Callable[[Json], Any]) -> Any:
    """Inverts `describe`. Raises WireError for a tree that `describe` does not make."""
    import torch

    if isinstance(tree, list):
        return [restore(v, tensor) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        raise WireError("not a described value")
    (tag, body), *_ = tree.items()
    match tag:
        case "tensor":
            return tensor(body)
        case "tuple":
            return tuple(restore(v, tensor) for v in body)
        case "dict":
            return {k: restore(v, tensor) for k, v in body.items()}
        case "float":
            return float(body)
        case "dtype":
            return getattr(torch, body)
        case "device":
            return torch.device(body)
    raise WireError(f"unknown tag {tag!r}")
